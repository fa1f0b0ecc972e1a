// The rules of who grants leases, one by one; where a rule can be broken, also what happens without it. Then the rounds
// against a twin that remembers everything.
#include "common/cluster/lease_grants.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/rng.h"

namespace dtrain::cluster {
namespace {

constexpr Duration kCounted = counted_lease(10s);
const AssignmentId kPsTask{7, 1, {"ps", 0}}, kChiefTask{7, 1, {"chief", 0}};
const MemberId kHost{1, 1}, kOther{1, 2};
constexpr std::uint64_t kIndex = 4;

Instant at(Duration since) { return Instant{} + since; }

// A coordinator that was elected at 100 s, and whose ledger has the ps on this host.
struct Granting {
  explicit Granting(std::string broken = "") : grants({10s, 5min, 4, std::move(broken)}) {
    grants.begin(at(100s));
    grants.placed(kPsTask, kHost, kIndex);
  }
  LeaseOutputs request(Duration now, const AssignmentId& id = kPsTask, const MemberId& host = kHost) {
    LeaseOutputs out;
    grants.request(at(now), {id, ++nonce, host}, out);
    return out;
  }
  LeaseOutputs done(Duration now, std::uint64_t round) {
    LeaseOutputs out;
    grants.round_done(at(now), round, out);
    return out;
  }
  // One whole round at that time.
  std::vector<LeaseAnswer> ask(Duration now, const AssignmentId& id = kPsTask, const MemberId& host = kHost) {
    return done(now, request(now, id, host).begin_round).answers;
  }
  Instant over(const AssignmentId& id = kPsTask) const { return grants.over_at(id, {false, {}}); }
  Instant over_without_agent(Duration since) const { return grants.over_at(kPsTask, {true, at(since)}); }
  LeaseGrants grants;
  std::uint64_t nonce = 0;
};

TEST(LeaseGrants, GrantsAfterARoundThatBeganAfterwards) {
  Granting coordinator;
  const auto first = coordinator.request(101s);
  EXPECT_NE(first.begin_round, 0u);
  EXPECT_TRUE(first.answers.empty());
  EXPECT_EQ(coordinator.request(102s, kChiefTask).begin_round, 0u);  // waits for the next round
  auto out = coordinator.done(103s, first.begin_round);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_TRUE(out.answers[0].granted);
  EXPECT_EQ(out.answers[0].request.nonce, 1u);
  ASSERT_NE(out.begin_round, 0u);  // at once
  EXPECT_TRUE(coordinator.done(103s, first.begin_round).answers.empty());
  out = coordinator.done(104s, out.begin_round);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_FALSE(out.answers[0].granted);  // nobody placed the chief here
  EXPECT_EQ(out.begin_round, 0u);
}

TEST(LeaseGrants, WithoutTheRulesOfRounds) {
  Granting hasty("fresh-round");
  EXPECT_EQ(hasty.request(101s).answers.size(), 1u);
  Granting joins("round-after-arrival");
  joins.grants.placed(kChiefTask, kHost, kIndex);
  const auto first = joins.request(101s);
  joins.request(102s, kChiefTask);
  EXPECT_EQ(joins.done(103s, first.begin_round).answers.size(), 2u);
}

TEST(LeaseGrants, ARoundThatIsLostAnswersNobody) {
  Granting coordinator;
  const auto first = coordinator.request(101s);
  LeaseOutputs out;
  coordinator.grants.round_lost(first.begin_round, out);
  EXPECT_TRUE(coordinator.done(102s, first.begin_round).answers.empty());
  EXPECT_EQ(coordinator.grants.counters().unanswered, 1u);
  EXPECT_EQ(coordinator.ask(103s).size(), 1u);
  const auto before = coordinator.request(104s);
  coordinator.grants.end();
  EXPECT_TRUE(coordinator.done(105s, before.begin_round).answers.empty());
}

TEST(LeaseGrants, OfManyThatWaitTheLimitIsKept) {
  Granting coordinator;
  const auto first = coordinator.request(101s);
  for (std::uint32_t i = 0; i < 6; ++i) coordinator.request(102s, {7, 1, {"chief", i}});
  coordinator.request(102s, {7, 1, {"chief", 0}});  // in place of its older one
  EXPECT_EQ(coordinator.grants.counters().dropped, 2u);
  const auto second = coordinator.done(103s, first.begin_round).begin_round;
  const auto answers = coordinator.done(104s, second).answers;
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0].request.nonce, coordinator.nonce);
}

TEST(LeaseGrants, AnotherHostIsSuperseded) {
  Granting coordinator;
  const auto answers = coordinator.ask(101s, kPsTask, kOther);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_FALSE(answers[0].granted);
  coordinator.grants.removed(kPsTask);
  EXPECT_FALSE(coordinator.ask(102s).at(0).granted);
}

TEST(LeaseGrants, ALeaseIsOverAfterTheLastPossibleGrantAndTheMargin) {
  Granting coordinator;
  EXPECT_EQ(coordinator.over(), at(100s + kCounted));  // a predecessor may have granted until the election
  coordinator.ask(150s);
  EXPECT_EQ(coordinator.over(), at(150s + kCounted));
  Granting tight("margin");
  tight.ask(150s);
  EXPECT_EQ(tight.over(), at(160s));
  EXPECT_EQ(Granting("count-from-election").over(), at(100s));
}

// It runs without any grant from when it was told to keep a lease: at the latest when its host said so.
TEST(LeaseGrants, WhatBeginsToKeepALeaseIsCountedFromThenAndForAsLongAsItsHostSays) {
  Granting coordinator;
  coordinator.grants.leased(at(200s), kPsTask, 10s);
  EXPECT_EQ(coordinator.over(), at(200s + kCounted));
  coordinator.grants.leased(at(300s), kPsTask, 30s);
  EXPECT_EQ(coordinator.over(), at(200s + counted_lease(30s))) << "that it keeps one was said before";
  coordinator.grants.leased(at(300s), kPsTask, 20s);
  EXPECT_EQ(coordinator.over(), at(200s + counted_lease(30s))) << "the longest counts";
  coordinator.grants.leased(at(300s), kChiefTask, 10s);
  EXPECT_EQ(coordinator.over(kChiefTask), at(100s)) << "nobody placed it";
}

TEST(LeaseGrants, AnAgentThatIsGoneGetsTimeToComeBack) {
  Granting coordinator;
  coordinator.ask(150s);
  EXPECT_EQ(coordinator.over_without_agent(155s), at(155s + 5min));
  coordinator.ask(155s + 5min);
  EXPECT_EQ(coordinator.over_without_agent(155s), at(155s + 5min + kCounted)) << "and its lease to end";
  Granting hasty("agent-grace");
  hasty.ask(150s);
  EXPECT_EQ(hasty.over_without_agent(155s), at(150s + kCounted));
}

TEST(LeaseGrants, NothingIsGrantedOnceASuccessorIsDecidedOn) {
  for (const bool broken : {false, true}) {
    Granting coordinator(broken ? "no-grant-after-decision" : "");
    const auto before = coordinator.request(150s);
    coordinator.grants.decided(kPsTask);
    EXPECT_EQ(coordinator.done(151s, before.begin_round).answers.size(), broken ? 1u : 0u);
    coordinator.grants.restored(kPsTask);
    EXPECT_EQ(coordinator.ask(152s).size(), 1u);
  }
}

TEST(LeaseGrants, ToldAgainNothingChangesAndPlacedAgainAllBeginsAnew) {
  Granting coordinator;
  coordinator.ask(150s);
  coordinator.grants.decided(kPsTask);
  coordinator.grants.placed(kPsTask, kHost, kIndex);
  EXPECT_EQ(coordinator.over(), at(150s + kCounted));
  EXPECT_TRUE(coordinator.ask(151s).empty());
  coordinator.grants.placed(kPsTask, kHost, kIndex + 1);
  EXPECT_EQ(coordinator.over(), at(100s + kCounted));
  EXPECT_EQ(coordinator.ask(152s).size(), 1u);
}

// The task is frozen a second before its lease ends.
TEST(LeaseGrants, SaysUntilWhenATaskRunsUnlessItIsRenewed) {
  Granting coordinator;
  EXPECT_EQ(coordinator.grants.renewed(kPsTask).until, kNever) << "its host may run it without a lease";
  coordinator.grants.leased(at(90s), kPsTask, 10s);
  EXPECT_EQ(coordinator.grants.renewed(kPsTask).until, at(109s));
  EXPECT_FALSE(coordinator.grants.renewed(kPsTask).granted) << "but by a predecessor";
  coordinator.ask(150s);
  EXPECT_EQ(coordinator.grants.renewed(kPsTask).until, at(159s));
  EXPECT_TRUE(coordinator.grants.renewed(kPsTask).granted);
  EXPECT_EQ(coordinator.grants.renewed(kChiefTask).until, kNever) << "nobody placed it";
}

// Every answer is to a request that arrived before its round began, every request of an assignment that is not the
// newest before a round may stay unanswered, and all others are answered by the round that began next.
TEST(LeaseGrantsTwin, RoundsAnswerWhatArrivedBeforeTheyBegan) {
  struct Asked {
    std::uint64_t nonce = 0;
    std::uint32_t index = 0;
  };
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    LeaseGrants grants({10s, 5min, 4096, ""});
    grants.begin(at(0s));
    const auto id = [](std::uint32_t index) { return AssignmentId{1, 1, {"ps", index}}; };
    for (std::uint32_t i = 0; i < 4; ++i) grants.placed(id(i), kHost, kIndex);
    std::vector<Asked> waiting, in_round;
    std::uint64_t round = 0, nonce = 0;
    const auto begins = [&](const LeaseOutputs& out) {
      EXPECT_EQ(out.begin_round != 0, round == 0 && !waiting.empty());
      if (out.begin_round == 0) return;
      round = out.begin_round;
      in_round = std::exchange(waiting, {});
    };
    for (int i = 0; i < 100; ++i) {
      LeaseOutputs out;
      if (rng.chance(2, 3)) {
        const auto index = static_cast<std::uint32_t>(rng.below(4));
        grants.request(at(1s), {id(index), ++nonce, kHost}, out);
        std::erase_if(waiting, [&](const Asked& older) { return older.index == index; });
        waiting.push_back({nonce, index});
        begins(out);
        continue;
      }
      const bool lost = rng.chance(1, 4);
      lost ? grants.round_lost(round, out) : grants.round_done(at(2s), round, out);
      std::vector<std::uint64_t> answered, expected;
      for (const LeaseAnswer& answer : out.answers) answered.push_back(answer.request.nonce);
      for (const Asked& asked : std::exchange(in_round, {}))
        if (!lost) expected.push_back(asked.nonce);
      std::sort(answered.begin(), answered.end());
      EXPECT_EQ(answered, expected) << "seed " << seed;
      round = 0;
      begins(out);
    }
  }
}

}  // namespace
}  // namespace dtrain::cluster
