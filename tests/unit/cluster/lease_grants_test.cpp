// The rules of who grants leases, one by one; where a rule can be broken, also what happens without it. Then the rounds
// against a twin that remembers everything.
#include "common/cluster/lease_grants.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/rng.h"

namespace dtrain::cluster {
namespace {

using HostState = HostSeen::State;
using Why = Replaceable::Why;

constexpr Duration kCounted = counted_lease(10s);
const AssignmentId kPsTask{7, 1, {"ps", 0}}, kChiefTask{7, 1, {"chief", 0}};
const MemberId kHost{1, 1}, kOther{1, 2};

Instant at(Duration since) {
  return Instant{} + since;
}

// A coordinator that was elected at 100 s in epoch 3, and told this host of the ps with revision 4.
struct Granting {
  explicit Granting(std::string broken = "", bool leased = true)
      : grants({10s, 5min, 4, std::move(broken)}) {
    grants.begin(at(100s));
    grants.placed(kPsTask, {kHost, "boot", leased}, {3, 4});
  }
  LeaseOutputs request(Duration now, AttemptNumber attempt = 1, const AssignmentId& id = kPsTask, std::string boot = "boot",
                       MemberId host = kHost) {
    LeaseOutputs out;
    grants.request(at(now), {id, attempt, ++nonce, host, std::move(boot)}, out);
    return out;
  }
  LeaseOutputs done(Duration now, std::uint64_t round) {
    LeaseOutputs out;
    grants.round_done(at(now), round, out);
    return out;
  }
  // One whole round at that time.
  std::vector<LeaseAnswer> ask(Duration now, AttemptNumber attempt = 1, const AssignmentId& id = kPsTask,
                               std::string boot = "boot", MemberId host = kHost) {
    return done(now, request(now, attempt, id, std::move(boot), host).begin_round).answers;
  }
  void report(const Fence& fence, std::vector<LeaseReport::Entry> entries, std::string boot = "boot") {
    grants.report({kHost, std::move(boot), fence, std::move(entries)});
  }
  Replaceable may(HostState state = HostState::dead, Duration since = 0s) const {
    return grants.replaceable(kPsTask, {state, at(since)});
  }
  LeaseGrants grants;
  std::uint64_t nonce = 0;
};

TEST(LeaseGrants, GrantsAfterARoundThatBeganAfterwards) {
  Granting coordinator;
  const auto first = coordinator.request(101s);
  EXPECT_NE(first.begin_round, 0u);
  EXPECT_TRUE(first.answers.empty());
  EXPECT_EQ(coordinator.request(102s, 1, kChiefTask).begin_round, 0u);  // waits for the next round
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
  joins.grants.placed(kChiefTask, {kHost, "boot", true}, {3, 4});
  const auto first = joins.request(101s);
  joins.request(102s, 1, kChiefTask);
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
  for (std::uint32_t i = 0; i < 6; ++i) coordinator.request(102s, 1, {7, 1, {"chief", i}});
  coordinator.request(102s, 2, {7, 1, {"chief", 0}});  // in place of its older one
  EXPECT_EQ(coordinator.grants.counters().dropped, 2u);
  const auto second = coordinator.done(103s, first.begin_round).begin_round;
  const auto answers = coordinator.done(104s, second).answers;
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0].request.attempt, 2u);
}

TEST(LeaseGrants, AnotherHostIsSuperseded) {
  Granting coordinator;
  const auto answers = coordinator.ask(101s, 1, kPsTask, "boot", kOther);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_FALSE(answers[0].granted);
  coordinator.grants.removed(kPsTask);
  EXPECT_FALSE(coordinator.ask(102s).at(0).granted);
}

TEST(LeaseGrants, AnotherBootIsNotGrantedAnything) {
  EXPECT_TRUE(Granting().ask(101s, 1, kPsTask, "later").empty());
  EXPECT_EQ(Granting("one-boot").ask(101s, 1, kPsTask, "later").size(), 1u);
}

TEST(LeaseGrants, AHostIsReplacedAfterTheLastPossibleGrantAndTheMargin) {
  Granting coordinator;
  EXPECT_EQ(coordinator.may(HostState::alive).at, kNever);
  EXPECT_EQ(coordinator.may().at, at(100s + kCounted));  // a predecessor may have granted until the election
  coordinator.ask(150s);
  EXPECT_EQ(coordinator.may().at, at(150s + kCounted));
  EXPECT_EQ(coordinator.may().why, Why::lease);
  Granting tight("margin");
  tight.ask(150s);
  EXPECT_EQ(tight.may().at, at(160s));
  EXPECT_EQ(Granting("count-from-election").may().at, at(100s));
}

TEST(LeaseGrants, ALongerLeaseOfItsHostIsCountedOut) {
  Granting coordinator;
  coordinator.grants.placed(kChiefTask, {kHost, "boot", true, 30s}, {3, 4});
  EXPECT_EQ(coordinator.grants.replaceable(kChiefTask, {HostState::dead, {}}).at, at(100s + counted_lease(30s)));
}

// It runs without any grant from when it was told to keep one: at the latest when its host said so.
TEST(LeaseGrants, WhatBeginsToKeepALeaseIsCountedFromThen) {
  Granting coordinator("", false);
  EXPECT_EQ(coordinator.may().why, Why::exempt);
  coordinator.grants.leased(at(200s), kPsTask, 10s);
  EXPECT_EQ(coordinator.may().at, at(200s + kCounted));
  coordinator.grants.leased(at(300s), kPsTask, 10s);
  EXPECT_EQ(coordinator.may().at, at(200s + kCounted)) << "it was said before";
  coordinator.grants.leased(at(300s), kChiefTask, 10s);
  EXPECT_EQ(coordinator.grants.replaceable(kChiefTask, {HostState::dead, {}}).why, Why::exited) << "nobody placed it";
}

TEST(LeaseGrants, AnAgentThatIsGoneGetsTimeToComeBack) {
  Granting coordinator;
  coordinator.ask(150s);
  EXPECT_EQ(coordinator.may(HostState::down, 155s).at, at(155s + 5min));
  EXPECT_EQ(coordinator.may(HostState::down, 155s).why, Why::grace);
  Granting hasty("agent-grace");
  hasty.ask(150s);
  EXPECT_EQ(hasty.may(HostState::down, 155s).at, at(150s + kCounted));
}

TEST(LeaseGrants, SilenceIsNoProof) {
  for (const bool broken : {false, true}) {
    Granting coordinator(broken ? "silence-is-no-proof" : "");
    coordinator.ask(150s);
    coordinator.report({3, 4}, {{kChiefTask, 1, true}});
    EXPECT_EQ(coordinator.may().at, broken ? at(100s) : at(150s + kCounted));
  }
}

TEST(LeaseGrants, TheExitOfTheNewestAttemptIsProof) {
  for (const bool broken : {false, true}) {
    Granting coordinator(broken ? "newest-attempt" : "");
    coordinator.ask(150s, 2);
    coordinator.report({3, 4}, {{kPsTask, 1, true}});
    EXPECT_EQ(coordinator.may().why, broken ? Why::exited : Why::lease);
    coordinator.report({3, 5}, {{kPsTask, 2, false}});
    EXPECT_EQ(coordinator.may().why, broken ? Why::exited : Why::lease);
    coordinator.report({3, 5}, {{kPsTask, 2, true}});
    EXPECT_EQ(coordinator.may().why, Why::exited);
    EXPECT_LE(coordinator.may().at, at(150s));
    coordinator.ask(151s, 3);  // started again in place
    EXPECT_EQ(coordinator.may().why, broken ? Why::exited : Why::lease);
  }
}

TEST(LeaseGrants, AnotherBootIsProof) {
  Granting coordinator;
  coordinator.ask(150s);
  coordinator.report({3, 4}, {}, "later");
  EXPECT_EQ(coordinator.may().why, Why::rebooted);
  EXPECT_TRUE(coordinator.ask(151s).empty());  // and what comes late of the other is not granted
}

TEST(LeaseGrants, NoProofBeforeTheHostHasAcceptedTheOrder) {
  for (const bool broken : {false, true}) {
    Granting coordinator(broken ? "accepted-before-proof" : "");
    for (const Fence& fence : {Fence{2, 9}, Fence{3, 3}}) coordinator.report(fence, {{kPsTask, 1, true}});
    EXPECT_EQ(coordinator.may().why, broken ? Why::exited : Why::lease);
    coordinator.report({2, 9}, {}, "earlier");
    EXPECT_EQ(coordinator.may().why, broken ? Why::rebooted : Why::lease);
  }
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

TEST(LeaseGrants, WithdrawnItRunsOutThoughItsHostIsAlive) {
  Granting coordinator;
  coordinator.ask(150s);
  coordinator.grants.withdraw(kPsTask, {3, 5});
  EXPECT_TRUE(coordinator.ask(151s).empty());
  EXPECT_EQ(coordinator.may(HostState::alive).at, at(150s + kCounted));
}

TEST(LeaseGrants, WithoutALeaseOnlyProofReplacesIt) {
  for (const bool broken : {false, true}) {
    Granting coordinator(broken ? "exempt-stays" : "", false);
    EXPECT_EQ(coordinator.may().why, broken ? Why::lease : Why::exempt);
    // Its host starts it again by itself, so an exit is proof only once it was told to stop it.
    coordinator.report({3, 4}, {{kPsTask, 1, true}});
    EXPECT_EQ(coordinator.may().why, broken ? Why::exited : Why::exempt);
    coordinator.grants.withdraw(kPsTask, {3, 5});
    coordinator.report({3, 5}, {{kPsTask, 1, true}});
    EXPECT_EQ(coordinator.may().why, Why::exited);
  }
  Granting gone("", false);
  EXPECT_EQ(gone.may(HostState::forgotten).why, Why::forgotten);
  gone.report({3, 4}, {}, "later");
  EXPECT_EQ(gone.may().why, Why::rebooted);
}

TEST(LeaseGrants, ToldAgainNothingChanges) {
  Granting coordinator;
  coordinator.ask(150s, 2);
  coordinator.grants.placed(kPsTask, {kHost, "boot", true}, {3, 4});
  EXPECT_EQ(coordinator.may().at, at(150s + kCounted));
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
    for (std::uint32_t i = 0; i < 4; ++i) grants.placed(id(i), {kHost, "boot", true}, {1, 1});
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
        grants.request(at(1s), {id(index), 1, ++nonce, kHost, "boot"}, out);
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
