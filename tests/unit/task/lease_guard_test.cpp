// The agent's guard: it freezes where the shim does not, and stands in nobody's way otherwise.
#include "common/task/lease_guard.h"

#include <gtest/gtest.h>

namespace dtrain::task {
namespace {

struct Guarded {
  explicit Guarded(std::string_view broken = {}) : guard({.lease = 10s, .broken_rule = broken}) {}
  GuardActions wake(Duration now) {
    GuardActions out;
    guard.wake(Instant{} + now, out);
    return out;
  }
  GuardActions pass_on(Duration asked, Duration granted, AttemptNumber attempt = 1) {
    guard.asked({attempt, ++nonce, Instant{} + asked});
    GuardActions out;
    guard.granted(Instant{} + granted, nonce, out);
    return out;
  }
  GuardActions frozen(Duration now) {
    GuardActions out;
    guard.frozen(Instant{} + now, out);
    return out;
  }
  LeaseGuard guard;
  std::uint64_t nonce = 0;
};

TEST(LeaseGuard, FreezesALittleAfterTheShimShouldHave) {
  for (const bool broken : {false, true}) {
    Guarded agent(broken ? "guard-freezes" : "");
    agent.pass_on(5s, 5100ms);
    EXPECT_FALSE(agent.wake(14s).freeze);
    EXPECT_EQ(agent.wake(14s + LeaseGuard::kAfterShim).freeze, !broken);
    EXPECT_EQ(agent.wake(15s).kill, !broken);
  }
}

TEST(LeaseGuard, WhatIsFrozenIsLeftAlone) {
  Guarded agent;
  agent.pass_on(0s, 1s);
  EXPECT_TRUE(agent.wake(9200ms).freeze);
  agent.frozen(9300ms);
  EXPECT_FALSE(agent.wake(1h).kill);
  EXPECT_EQ(agent.guard.deadline(), kNever);
}

TEST(LeaseGuard, WatchesAgainAfterEveryGrantItPassesOn) {
  Guarded agent;
  agent.pass_on(0s, 1s);
  agent.wake(9200ms);
  agent.frozen(9300ms);
  agent.pass_on(9400ms, 9500ms);
  EXPECT_EQ(agent.guard.deadline(), Instant{} + 9400ms + 9200ms);
  EXPECT_TRUE(agent.wake(9400ms + 9200ms).freeze);
  agent.pass_on(20s, 20100ms);  // the shim may thaw by this while it freezes
  EXPECT_FALSE(agent.wake(21s).kill);
  EXPECT_TRUE(agent.wake(29200ms).freeze);
}

TEST(LeaseGuard, ALateGrantIsOfNoUse) {
  Guarded agent;
  agent.pass_on(0s, 1s);
  EXPECT_TRUE(agent.pass_on(500ms, 9600ms).freeze);
  EXPECT_TRUE(agent.wake(10s).kill);
}

TEST(LeaseGuard, ANewLifeKnowsWhatTheRecordSays) {
  Guarded agent;
  EXPECT_EQ(agent.guard.deadline(), kNever);
  agent.guard.told(3, true, Instant{} + 4s);
  EXPECT_EQ(agent.guard.deadline(), Instant{} + 3200ms);
  agent.guard.told(3, true, Instant{} + 6s);
  agent.guard.told(3, true, Instant{} + 5s);  // said late
  EXPECT_TRUE(agent.wake(5200ms).freeze);
}

TEST(LeaseGuard, WhatItFrozeStandsStillUntilAGrantItPassedOnOrReadOf) {
  Guarded agent;
  agent.guard.told(1, true, Instant{} + 4s);
  EXPECT_FALSE(agent.guard.is_frozen());
  agent.wake(3200ms);
  agent.frozen(3300ms);
  agent.guard.told(1, true, Instant{} + 4s);  // said before the shim knew of it
  EXPECT_TRUE(agent.guard.is_frozen());
  agent.guard.told(1, true, Instant{} + 14s);  // granted in answer to the life before
  EXPECT_FALSE(agent.guard.is_frozen());
  EXPECT_TRUE(agent.wake(13200ms).freeze);
  agent.frozen(13300ms);
  agent.pass_on(13400ms, 13500ms);
  EXPECT_FALSE(agent.guard.is_frozen());
}

TEST(LeaseGuard, WhatEndedIsNotWatchedUntilItsSuccessorIsGranted) {
  Guarded agent;
  agent.pass_on(0s, 1s, 1);
  agent.guard.told(1, false, {});
  EXPECT_FALSE(agent.wake(1h).freeze);
  agent.pass_on(2h, 2h, 2);
  agent.guard.told(1, false, {});  // said late
  EXPECT_TRUE(agent.wake(2h + 9200ms).freeze);
}

}  // namespace
}  // namespace dtrain::task
