#include "common/gossip/suspicion.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <set>

namespace dtrain::gossip {
namespace {

constexpr Instant kStart{100s};
constexpr SuspicionTimes kTimes{.min = 4700ms, .max = 9400ms, .wanted = 3};
MemberId accuser_id(std::uint64_t number) { return {1, number}; }

TEST(Rule04Suspicion, FirstAccuserIsNoConfirmationAndCountsOnce) {
  Suspicion suspicion(7, accuser_id(1), kStart, kTimes);
  EXPECT_EQ(suspicion.confirmations(), 0u);
  EXPECT_EQ(suspicion.deadline(), kStart + 9400ms);
  EXPECT_FALSE(suspicion.confirm(accuser_id(1)));
  EXPECT_EQ(suspicion.deadline(), kStart + 9400ms);
  EXPECT_EQ(suspicion.incarnation(), 7u);
}

TEST(Rule04Suspicion, EachNewAccuserShortensFromTheOriginalStartNoneAfterK) {
  Suspicion suspicion(7, accuser_id(1), kStart, kTimes);
  EXPECT_TRUE(suspicion.confirm(accuser_id(2)));
  EXPECT_EQ(suspicion.deadline(), kStart + 7050ms);  // ln 2 / ln 4 is a half
  EXPECT_FALSE(suspicion.confirm(accuser_id(2)));
  EXPECT_TRUE(suspicion.confirm(accuser_id(3)));
  EXPECT_TRUE(suspicion.wants_more());
  EXPECT_TRUE(suspicion.confirm(accuser_id(4)));
  EXPECT_EQ(suspicion.deadline(), kStart + 4700ms);
  EXPECT_FALSE(suspicion.wants_more());
  EXPECT_FALSE(suspicion.confirm(accuser_id(5)));
  EXPECT_EQ(suspicion.accusers().size(), 4u);
  EXPECT_FALSE(suspicion.accused_by(accuser_id(5)));
}

TEST(Rule04Suspicion, NoneWantedWhereTooFewCouldConfirm) {
  EXPECT_EQ(wanted_confirmations(3, 4), 0u);
  EXPECT_EQ(wanted_confirmations(3, 5), 3u);
  EXPECT_EQ(wanted_confirmations(3, 0), 0u);
  EXPECT_EQ(wanted_confirmations(0, 100), 0u);
  Suspicion suspicion(1, accuser_id(1), kStart, {.min = 4700ms, .max = 9400ms, .wanted = 0});
  EXPECT_EQ(suspicion.deadline(), kStart + 4700ms);
  EXPECT_FALSE(suspicion.confirm(accuser_id(2)));
}

TEST(Rule04Suspicion, SwitchedOffOneAccuserIsEnough) {
  Suspicion suspicion(1, accuser_id(1), kStart, {.min = 4700ms, .max = 9400ms, .wanted = 1, .accuser_counts_once = false});
  EXPECT_TRUE(suspicion.confirm(accuser_id(1)));
  EXPECT_EQ(suspicion.deadline(), kStart + 4700ms);
}

TEST(Rule16Suspicion, RestartGivesTheFullTimeAgainAndKeepsTheAccusers) {
  Suspicion suspicion(1, accuser_id(1), kStart, kTimes);
  suspicion.confirm(accuser_id(2));
  suspicion.restart(kStart + 60s);
  EXPECT_EQ(suspicion.deadline(), kStart + 60s + 7050ms);
  EXPECT_FALSE(suspicion.confirm(accuser_id(2)));
}

TEST(Rule17Suspicion, BadHealthStartsAtMaximumAlsoWhereNoneIsWanted) {
  Suspicion suspicion(1, accuser_id(1), kStart, {.min = 4700ms, .max = 9400ms, .wanted = 0, .start_at_max = true});
  EXPECT_EQ(suspicion.deadline(), kStart + 9400ms);
  EXPECT_FALSE(suspicion.confirm(accuser_id(2)));
  EXPECT_EQ(suspicion.deadline(), kStart + 9400ms);
}

TEST(Suspicion, TableIsTheLogarithm) {
  for (std::uint32_t wanted = 1; wanted <= kMostConfirmations; ++wanted) {
    for (std::uint32_t confirmed = 0; confirmed <= wanted; ++confirmed) {
      const double exact = 1024 * std::log(confirmed + 1.0) / std::log(wanted + 1.0);
      EXPECT_LE(confirmed_share(confirmed, wanted), exact + 1e-6) << wanted << ' ' << confirmed;
      EXPECT_GT(confirmed_share(confirmed, wanted), exact - 1) << wanted << ' ' << confirmed;
    }
  }
  EXPECT_EQ(confirmed_share(5, 3), 1024u);
  EXPECT_EQ(confirmed_share(0, 0), 1024u);
  EXPECT_EQ(confirmed_share(4, 100), confirmed_share(4, kMostConfirmations));
}

// Twin: a set of accusers and the formula of the paper.
RC_GTEST_PROP(Rule04Suspicion, AgreesWithTheFormula, (const std::vector<std::uint8_t>& accusers)) {
  const auto wanted = *rc::gen::inRange<std::uint32_t>(0, kMostConfirmations + 1);
  const auto min = *rc::gen::inRange(1, 20'000);
  const auto max = *rc::gen::inRange(1, 40'000);
  Suspicion suspicion(1, accuser_id(0), kStart, {.min = min * 1ms, .max = max * 1ms, .wanted = wanted});
  std::set<std::uint64_t> twin{0};
  for (const std::uint8_t accuser : accusers) {
    const bool fresh = twin.size() <= wanted && twin.insert(accuser % 16).second;
    RC_ASSERT(suspicion.confirm(accuser_id(accuser % 16)) == fresh);
    const double from = std::max(min, max), confirmed = static_cast<double>(twin.size()) - 1;
    const double timeout =
        wanted == 0 ? min : std::max<double>(min, from - (from - min) * std::log(confirmed + 1) / std::log(wanted + 1.0));
    const double ours = std::chrono::duration<double, std::milli>(suspicion.deadline() - kStart).count();
    RC_ASSERT(std::abs(ours - timeout) <= (from - min) / 1024 + 0.01);
    RC_ASSERT(suspicion.confirmations() == twin.size() - 1);
  }
}

}  // namespace
}  // namespace dtrain::gossip
