// The rules of who holds a lease, one by one; where a rule can be broken, also what happens without it.
#include "common/task/lease.h"

#include <gtest/gtest.h>

namespace dtrain::task {
namespace {

using Phase = Lease::Phase;

Instant at(Duration since) { return Instant{} + since; }

// A shim on a clock of its own.
struct Shim {
  explicit Shim(std::string_view broken = {}, bool exempt = false, std::uint64_t epoch = 1)
      : lease({.lease = 10s, .ask_every = 2s, .ask_retry = 500ms, .exempt = exempt, .broken_rule = broken}, 100, epoch) {}

  template <class Step>
  LeaseActions at(Duration now, Step step) {
    LeaseActions out;
    step(task::at(now), out);
    if (out.ask) asked = *out.ask;
    return out;
  }
  LeaseActions wake(Duration now) {
    return at(now, [&](Instant t, LeaseActions& out) { lease.wake(t, out); });
  }
  LeaseActions start(Duration now, AttemptNumber attempt = 1) {
    return at(now, [&](Instant t, LeaseActions& out) { took = lease.start(t, attempt, out); });
  }
  LeaseActions grant(Duration now, std::uint64_t nonce, std::uint64_t epoch = 1) {
    return at(now, [&](Instant t, LeaseActions& out) { took = lease.granted(t, nonce, epoch, out); });
  }
  LeaseActions supersede(Duration now, std::uint64_t epoch = 1) {
    return at(now, [&](Instant t, LeaseActions& out) { took = lease.superseded(t, epoch, out); });
  }
  LeaseActions hold(Duration now, bool on) {
    return at(now, [&](Instant t, LeaseActions& out) { took = lease.hold(t, on, out); });
  }
  LeaseActions frozen(Duration now) {
    return at(now, [&](Instant t, LeaseActions& out) { lease.frozen(t, out); });
  }
  LeaseActions ended(Duration now) {
    return at(now, [&](Instant t, LeaseActions& out) { lease.ended(t, out); });
  }
  void run_from(Duration now) {
    start(now);
    ASSERT_TRUE(grant(now, asked.nonce).start);
  }
  void freeze_at(Duration now) {  // as the lease ran out
    ASSERT_TRUE(wake(now).freeze);
    frozen(now + 5ms);
    ASSERT_EQ(lease.phase(), Phase::frozen);
  }

  Lease lease;
  LeaseAsk asked;
  bool took = false;
};

TEST(Lease, StartsOnAGrantAndAsksAgainBeforeItEnds) {
  Shim shim;
  const auto ordered = shim.start(1s);
  ASSERT_TRUE(ordered.ask);
  EXPECT_FALSE(ordered.start);
  EXPECT_EQ(ordered.ask->attempt, 1u);
  EXPECT_EQ(ordered.ask->t0, at(1s));
  EXPECT_EQ(shim.lease.deadline(), at(1500ms));
  EXPECT_TRUE(shim.grant(1200ms, ordered.ask->nonce).start);
  EXPECT_EQ(shim.lease.until(), at(11s));
  EXPECT_EQ(shim.lease.deadline(), at(3s));
  const auto again = shim.wake(3s);
  ASSERT_TRUE(again.ask);
  EXPECT_NE(again.ask->nonce, ordered.ask->nonce);
  shim.grant(3100ms, again.ask->nonce);
  EXPECT_EQ(shim.lease.until(), at(13s));
  EXPECT_EQ(shim.lease.phase(), Phase::running);
}

TEST(Lease, AStartThatWaitsCanBeTakenBackAndOrderedAgain) {
  Shim shim;
  const auto ordered = shim.start(1s);
  EXPECT_TRUE(shim.lease.withdraw());
  EXPECT_FALSE(shim.lease.withdraw());
  EXPECT_FALSE(shim.grant(1200ms, ordered.ask->nonce).start);
  EXPECT_EQ(shim.lease.deadline(), kNever);
  const auto again = shim.start(2s);
  ASSERT_TRUE(again.ask);
  EXPECT_FALSE(shim.grant(2100ms, ordered.ask->nonce).start);
  EXPECT_TRUE(shim.grant(2200ms, again.ask->nonce).start);
  EXPECT_FALSE(shim.lease.withdraw());
  EXPECT_EQ(shim.lease.phase(), Phase::running);
}

TEST(Lease, AnUnansweredQuestionIsAskedAgainAndEveryAnswerCounts) {
  Shim shim;
  const auto first = shim.start(0s), second = shim.wake(500ms), third = shim.wake(1s);
  ASSERT_TRUE(second.ask && third.ask);
  EXPECT_TRUE(shim.grant(1100ms, second.ask->nonce).start);
  EXPECT_EQ(shim.lease.until(), at(10500ms));
  shim.grant(1200ms, first.ask->nonce);
  EXPECT_EQ(shim.lease.until(), at(10500ms));
  shim.grant(1300ms, third.ask->nonce);
  EXPECT_EQ(shim.lease.until(), at(11s));
}

TEST(Lease, TheOldestOfTooManyQuestionsIsForgotten) {
  Shim shim;
  const auto first = shim.start(0s);
  for (std::size_t i = 1; i <= GrantedTime::kAsksKept; ++i) ASSERT_TRUE(shim.wake(i * 500ms).ask);
  EXPECT_FALSE(shim.grant(5s, first.ask->nonce).start);
  EXPECT_TRUE(shim.grant(5s, shim.asked.nonce).start);
}

TEST(Lease, AGrantCountsFromTheQuestionWheneverItArrives) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "from-asking" : "");
    shim.start(0s);
    shim.grant(6s, shim.asked.nonce);
    EXPECT_EQ(shim.lease.until(), broken ? at(16s) : at(10s));
  }
  Shim late;
  late.start(0s);
  EXPECT_FALSE(late.grant(9s, late.asked.nonce).start);  // it would have to freeze at once
  EXPECT_EQ(late.lease.phase(), Phase::waiting);
}

TEST(Lease, NearItsEndTheTaskIsFrozenNotKilled) {
  Shim shim;
  shim.run_from(0s);
  EXPECT_FALSE(shim.wake(9s - 1ns).freeze);
  const auto out = shim.wake(9s);
  EXPECT_TRUE(out.freeze && out.ask);
  EXPECT_FALSE(out.kill);
  shim.frozen(9010ms);
  EXPECT_EQ(shim.lease.phase(), Phase::frozen);
  EXPECT_FALSE(shim.wake(1000s).kill);
}

TEST(Lease, WhatIsNotFrozenInTimeIsKilledAndSaidToBeUnfenced) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "freeze-bounded" : "");
    shim.run_from(0s);
    shim.wake(9s);
    EXPECT_FALSE(shim.wake(10s - 1ns).kill);
    const auto out = shim.wake(10s);
    EXPECT_EQ(out.kill, !broken);
    EXPECT_EQ(out.unfenced, !broken);
  }
}

TEST(Lease, WhoWakesUpLateHasOnlyWhatTheMarginProvidesFor) {
  Shim shim;
  shim.run_from(0s);
  EXPECT_TRUE(shim.wake(60s).freeze);
  EXPECT_FALSE(shim.wake(60s + kLateFreeze - 1ns).kill);
  const auto out = shim.wake(60s + kLateFreeze);
  EXPECT_TRUE(out.kill && out.unfenced);
  Shim frozen;  // but what is frozen meanwhile needs no kill
  frozen.run_from(0s);
  frozen.wake(9s);
  EXPECT_FALSE(frozen.frozen(60s).kill);
  EXPECT_EQ(frozen.lease.phase(), Phase::frozen);
}

TEST(Lease, ExpiryComesBeforeWhatWasReceived) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "expiry-first" : "");
    shim.run_from(0s);
    shim.wake(8s);
    const auto out = shim.grant(12s, shim.asked.nonce);  // asked for at 8 s: good until 18 s
    EXPECT_EQ(out.freeze, !broken);
    EXPECT_EQ(shim.lease.phase(), broken ? Phase::running : Phase::freezing);
  }
}

TEST(Lease, AThawNeedsAGrantAskedForAfterTheFreezeBegan) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "thaw-asks" : "");
    shim.run_from(0s);
    shim.wake(8500ms);
    const std::uint64_t before = shim.asked.nonce;
    shim.freeze_at(9s);
    EXPECT_EQ(shim.grant(9100ms, before).thaw, broken);
    if (broken) continue;
    shim.wake(9500ms);
    EXPECT_TRUE(shim.grant(9600ms, shim.asked.nonce).thaw);
    EXPECT_EQ(shim.lease.phase(), Phase::running);
    EXPECT_EQ(shim.lease.until(), at(19500ms));
  }
}

TEST(Lease, AFreshGrantThawsWhatIsStillFreezing) {
  Shim shim;
  shim.run_from(0s);
  shim.wake(9s);
  EXPECT_TRUE(shim.grant(9002ms, shim.asked.nonce).thaw);
  shim.ended(9003ms);
  EXPECT_EQ(shim.lease.phase(), Phase::idle);
}

TEST(Lease, WhatTheAgentFrozeIsThawedByAFreshGrant) {
  Shim shim;
  shim.run_from(0s);
  shim.wake(2s);
  const std::uint64_t before = shim.asked.nonce;
  ASSERT_TRUE(shim.frozen(2100ms).ask);
  EXPECT_FALSE(shim.grant(2200ms, before).thaw);
  EXPECT_TRUE(shim.grant(2200ms, shim.asked.nonce).thaw);
}

TEST(Lease, ARestartNeedsAGrantOfItsOwn) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "start-asks" : "");
    shim.run_from(0s);
    shim.wake(2s);
    const std::uint64_t before = shim.asked.nonce;
    shim.ended(3s);
    EXPECT_EQ(shim.start(3s, 2).start, broken);
    if (broken) continue;
    EXPECT_FALSE(shim.grant(3100ms, before).start);
    EXPECT_TRUE(shim.grant(3100ms, shim.asked.nonce).start);
  }
}

TEST(Lease, AnswersToOthersAreIgnored) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "own-nonce" : "");
    shim.start(0s);
    EXPECT_EQ(shim.grant(1ms, 4711).start, broken);
  }
  Shim once;
  once.start(0s);
  const std::uint64_t nonce = once.asked.nonce;
  EXPECT_TRUE(once.grant(1ms, nonce).start);
  once.ended(2ms);
  once.start(3ms, 2);
  EXPECT_FALSE(once.grant(4ms, nonce).start);
}

TEST(Lease, AStartIsOfAHigherAttemptAndOnlyWhileNothingRuns) {
  Shim shim;
  shim.run_from(0s);
  shim.start(1s, 2);
  EXPECT_FALSE(shim.took);
  shim.ended(2s);
  shim.start(2s, 1);
  EXPECT_FALSE(shim.took);
  shim.start(2s, 5);
  EXPECT_TRUE(shim.took);
}

TEST(Lease, SupersededIsKilledAsItIsAndForGood) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "superseded-stays" : "");
    shim.run_from(0s);
    shim.freeze_at(9s);
    const auto out = shim.supersede(9500ms);
    EXPECT_TRUE(out.kill);
    EXPECT_EQ(out.thaw, broken);
    if (broken) continue;
    EXPECT_FALSE(shim.grant(9600ms, shim.asked.nonce).thaw);
    shim.ended(9700ms);
    EXPECT_FALSE(shim.start(9800ms, 2).ask);
    EXPECT_FALSE(shim.took);
    EXPECT_EQ(shim.lease.deadline(), kNever);
  }
  Shim waiting;
  waiting.start(0s);
  EXPECT_FALSE(waiting.supersede(1ms).kill);
  EXPECT_FALSE(waiting.grant(2ms, waiting.asked.nonce).start);
}

TEST(Lease, ALowerEpochIsRefused) {
  for (const bool broken : {false, true}) {
    Shim shim(broken ? "epoch-fence" : "", false, 5);
    shim.start(0s);
    EXPECT_EQ(shim.grant(1ms, shim.asked.nonce, 4).start, broken);
    if (broken) continue;
    EXPECT_TRUE(shim.grant(1ms, shim.asked.nonce, 7).start);
    EXPECT_EQ(shim.lease.epoch(), 7u);
    shim.supersede(2ms, 6);
    EXPECT_FALSE(shim.took);
    EXPECT_EQ(shim.lease.phase(), Phase::running);
    shim.supersede(3ms, 7);
    EXPECT_TRUE(shim.took);
  }
}

TEST(Lease, HeldFrozenByAnOrderNoGrantThawsIt) {
  Shim shim;
  shim.run_from(0s);
  shim.wake(2s);
  EXPECT_TRUE(shim.hold(2100ms, true).freeze);
  shim.frozen(2200ms);
  EXPECT_FALSE(shim.grant(2300ms, shim.asked.nonce).thaw);
  EXPECT_FALSE(shim.wake(20s).ask);
  const auto released = shim.hold(20s, false);
  ASSERT_TRUE(released.ask);
  EXPECT_FALSE(released.thaw);
  EXPECT_TRUE(shim.grant(20100ms, shim.asked.nonce).thaw);
}

TEST(Lease, ExemptNeedsNoneUntilItIsRequired) {
  Shim shim("", true);
  EXPECT_TRUE(shim.start(0s).start);
  EXPECT_FALSE(shim.wake(1h).freeze);
  EXPECT_EQ(shim.lease.deadline(), kNever);
  shim.hold(1h, true);
  shim.frozen(1h);
  EXPECT_TRUE(shim.hold(1h, false).thaw);
  const auto required = shim.at(2h, [&](Instant t, LeaseActions& out) { shim.lease.require(t, out); });
  ASSERT_TRUE(required.ask);
  EXPECT_EQ(shim.lease.until(), at(2h + 10s));
  EXPECT_TRUE(shim.wake(2h + 9s).freeze);
}

TEST(CountedLease, IsOverOnEveryClockThatDriftsByOnePercent) {
  for (const Duration lease : {2s, 10s, 600s}) {
    // In units of the fast clock per hundredth: the holder's runs slow and needs 100/99 of real time, the counter's
    // shows 101/100 of it.
    const std::int64_t real_99 = (lease + kExposure).count() * 100;  // times 99
    EXPECT_GE(counted_lease(lease).count() * 100 * 99, real_99 * 101) << lease.count();
    EXPECT_LT(counted_lease(lease), lease + kExposure + lease / 40 + 10ms);
  }
}

}  // namespace
}  // namespace dtrain::task
