// Random histories of a lease against a twin that forgets nothing and looks everything up: whatever is let run has a
// grant that allows it, and nothing is left to run or to stand without reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/rng.h"
#include "common/task/lease.h"

namespace dtrain::task {
namespace {

constexpr Duration kLease = 10s;

// Every question ever asked, when it was answered, and when the task last had to stand.
struct Naive {
  struct Asked {
    LeaseAsk ask;
    bool granted = false;
  };
  std::vector<Asked> all;
  Instant stands_since{};
  std::size_t asked_before = 0;  // questions asked before that, also at the same instant

  void stands(Instant now) {
    stands_since = now;
    asked_before = all.size();
  }
  // Some grant, asked for since the task stands, lets it run now.
  bool fresh(Instant now) const {
    return std::any_of(all.begin() + static_cast<std::ptrdiff_t>(asked_before), all.end(),
                       [&](const Asked& each) { return each.granted && each.ask.t0 + kLease - kFreezeAhead > now; });
  }
  // The end of the last lease of all that were granted.
  Instant until() const {
    Instant last{};
    for (const Asked& each : all)
      if (each.granted) last = std::max(last, each.ask.t0 + kLease);
    return last;
  }
};

TEST(LeaseTwin, NothingRunsWithoutAGrantThatAllowsIt) {
  std::uint64_t starts = 0, thaws = 0, freezes = 0, kills = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    Rng rng(seed);
    Naive naive;
    Lease lease({.lease = kLease}, 1000 * seed, 1);
    Instant now = Instant{} + 100s;
    AttemptNumber attempt = 0;
    for (int i = 0; i < 400; ++i) {
      constexpr Duration kSteps[] = {0ns, 1ms, 300ms, 2s, 15s};
      const auto longest = static_cast<std::uint64_t>(kSteps[rng.below(std::size(kSteps))].count());
      now += Duration(static_cast<std::int64_t>(rng.below(longest + 1)));
      LeaseActions out;
      const auto before = lease.phase();
      switch (rng.below(8)) {
        case 0:
          if (before != Lease::Phase::idle) break;
          naive.stands(now);
          ASSERT_TRUE(lease.start(now, ++attempt, out));
          break;
        case 1:
          if (before == Lease::Phase::freezing) lease.frozen(now, out);
          break;
        case 2:
          if (before != Lease::Phase::idle && before != Lease::Phase::waiting && rng.chance(1, 4)) lease.ended(now, out);
          break;
        case 3:
        case 4:
        case 5: {  // an answer, to a recent question as a rule
          if (naive.all.empty()) break;
          const std::size_t newest = rng.chance(1, 8) ? 100 : 3;
          const std::size_t back = rng.below(std::min(naive.all.size(), newest));
          Naive::Asked& answered = naive.all[naive.all.size() - 1 - back];
          // Expiry comes first: what it makes stand is not let run by an older question.
          LeaseActions first;
          Lease copy = lease;
          copy.wake(now, first);
          if (first.freeze) naive.stands(now);
          answered.granted = lease.granted(now, answered.ask.nonce, 1, out) || answered.granted;
          break;
        }
        default: lease.wake(now, out);
      }
      if (out.freeze) naive.stands(now);
      if (out.start || out.thaw) {
        EXPECT_TRUE(naive.fresh(now)) << "seed " << seed << " step " << i;
      }
      if (out.ask) naive.all.push_back({*out.ask, false});
      if (lease.phase() == Lease::Phase::running) {
        EXPECT_EQ(lease.until(), naive.until()) << "seed " << seed << " step " << i;
        LeaseActions due;
        Lease copy = lease;
        copy.wake(now, due);
        EXPECT_EQ(due.freeze, now >= naive.until() - kFreezeAhead);
      }
      EXPECT_FALSE(out.kill && out.thaw);
      EXPECT_FALSE(out.freeze && out.thaw);
      const bool over = lease.phase() == Lease::Phase::idle || lease.phase() == Lease::Phase::killing;
      EXPECT_EQ(lease.deadline() == kNever, over);  // it goes on asking
      starts += out.start;
      thaws += out.thaw;
      freezes += out.freeze;
      kills += out.kill;
    }
  }
  EXPECT_GT(std::min({starts, thaws, freezes, kills}), 500u);
}

}  // namespace
}  // namespace dtrain::task
