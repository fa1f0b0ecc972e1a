// When a task has a standby, and for how long.
#include "common/task/standby_plan.h"

#include <gtest/gtest.h>

#include <string>

namespace dtrain::task {
namespace {

using Act = StandbyPlan::Act;
constexpr std::uint64_t kPlenty = 64ull << 30;

class Standbys : public ::testing::Test {
 protected:
  // The acts that are due after that time: "begin worker-1", "give up worker-1: CAUSE", ...
  std::string after(Duration time, std::optional<std::uint64_t> memory = kPlenty) {
    now_ += time;
    std::string text;
    for (const auto& [key, act, cause] : plan_.steps(now_, memory)) {
      const std::string what = act == Act::begin ? "begin " : act == Act::forget ? "forget " : "give up ";
      text += (text.empty() ? "" : "; ") + what + key.second.text() + (cause.empty() ? "" : ": " + cause);
    }
    return text;
  }
  StandbyPlan::Key task(std::uint32_t index) const { return {1, {"worker", index}}; }
  StandbyPlan::Key running(std::uint32_t index, std::uint32_t user = 1000) {
    plan_.add(task(index), user);
    plan_.attempt_started(task(index), now_);
    return task(index);
  }
  StandbyPlan::Key waiting(std::uint32_t index) {
    const auto key = running(index);
    EXPECT_EQ(after(kStandbyAfter), "begin " + key.second.text());
    plan_.ready(key, now_);
    return key;
  }

  Instant now_{100s};
  StandbyPlan plan_;
};

TEST_F(Standbys, OneBeginsAWhileAfterItsAttempt) {
  const auto key = running(0);
  EXPECT_EQ(plan_.deadline(), now_ + kStandbyAfter);
  EXPECT_EQ(after(kStandbyAfter - 1ms), "");
  EXPECT_EQ(after(1ms), "begin worker-0");
  EXPECT_FALSE(plan_.waits(key));
  plan_.ready(key, now_);
  EXPECT_TRUE(plan_.waits(key));
  EXPECT_EQ(after(1h), "") << "as long as the attempt runs";
  plan_.used(key);
  EXPECT_FALSE(plan_.waits(key));
  plan_.attempt_started(key, now_);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0");
}

TEST_F(Standbys, AScriptThatFailsAtOnceNeedsNone) {
  const auto key = running(0);
  EXPECT_FALSE(plan_.attempt_ended(key, false));
  EXPECT_EQ(after(1h), "");
}

TEST_F(Standbys, OneThatIsNotReadyInTimeIsGivenUp) {
  running(0);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0");
  EXPECT_EQ(after(kStandbyBound), "give up worker-0: it was not ready in time");
  EXPECT_EQ(after(1h), "");
}

TEST_F(Standbys, OneThatWaitsStaysAfterItsAssignmentForTheNext) {
  const auto key = waiting(0);
  EXPECT_FALSE(plan_.attempt_ended(key, false));
  plan_.assignment_over(key, now_);
  EXPECT_EQ(after(kStandbyStays - 1ms), "");
  EXPECT_TRUE(plan_.waits(key));
  EXPECT_EQ(after(1ms), "forget worker-0");
  EXPECT_EQ(after(kMemoryPause), "");
  EXPECT_EQ(plan_.deadline(), kNever) << "nobody looks at the memory any more";
}

TEST_F(Standbys, OneThatPreparesEndsWithItsAssignmentAndWithSuccess) {
  const auto key = running(0), other = running(1);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0; begin worker-1");
  plan_.assignment_over(key, now_);
  EXPECT_EQ(after(0s), "forget worker-0");
  EXPECT_TRUE(plan_.attempt_ended(other, true));
  EXPECT_EQ(after(1h), "");
}

TEST_F(Standbys, OneThatDiesWhileItWaitsIsReplacedSoOften) {
  const auto key = waiting(0);
  for (std::uint32_t death = 1; death <= kStandbyDeaths; ++death) {
    plan_.failed(key, now_);
    EXPECT_EQ(after(kStandbyAfter - 1ms), "");
    EXPECT_EQ(after(1ms), "begin worker-0");
    plan_.ready(key, now_);
  }
  plan_.failed(key, now_);
  EXPECT_EQ(after(1h), "");
  plan_.attempt_started(key, now_);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0") << "the next attempt has one again";
  plan_.ready(key, now_);
  plan_.failed(key, now_);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0") << "and is counted anew";
}

TEST_F(Standbys, OneWhoseImportsFailIsNotTriedAgain) {
  const auto key = running(0);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0");
  plan_.failed(key, now_);
  EXPECT_EQ(after(1h), "");
}

TEST_F(Standbys, WithoutMemoryThereIsNone) {
  waiting(0);
  running(1);
  EXPECT_EQ(after(kMemoryPause, kLeastMemory), "begin worker-1");
  EXPECT_LE(plan_.deadline(), now_ + kMemoryPause) << "it is looked at again";
  running(2);
  EXPECT_EQ(after(kMemoryPause, kLeastMemory - 1),
            "give up worker-0: memory is short; give up worker-1: memory is short; "
            "give up worker-2: memory is short");
  running(3);
  EXPECT_EQ(after(kStandbyAfter, std::nullopt), "begin worker-3") << "where it is not known it is not short";
}

TEST_F(Standbys, SoManyOfOneUserAndOfAll) {
  constexpr std::size_t kUsers = kStandbys / kStandbysOfUser;
  const auto count = [](const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  for (std::uint32_t i = 0; i <= kStandbysOfUser; ++i) running(i);
  EXPECT_EQ(count(after(kStandbyAfter), "begin"), kStandbysOfUser);
  for (std::uint32_t user = 1; user < kUsers; ++user)
    for (std::uint32_t i = 0; i < kStandbysOfUser; ++i) running(1000 * user + i, 1000 + user);
  running(9999, 9999);
  const std::string acts = after(kStandbyAfter);
  EXPECT_EQ(count(acts, "begin"), kStandbys - kStandbysOfUser);
  EXPECT_EQ(count(acts, "give up worker-9999: this host has 64 already"), 1u);
}

TEST_F(Standbys, WithoutRoomAtItsLauncherItIsTriedLater) {
  const auto key = running(0);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0");
  plan_.not_now(key, now_);
  EXPECT_EQ(after(kStandbyAfter), "begin worker-0");
}

}  // namespace
}  // namespace dtrain::task
