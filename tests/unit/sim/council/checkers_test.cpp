// Each checker of world council notices its own broken promise and is silent about what looks alike and is
// right.
#include <gtest/gtest.h>

#include "tests/unit/sim/council/fake_view.h"

namespace dtrain::sim::council {
namespace {

using Outcome = RegisterMachine::Outcome;
using Done = RegisterMachine::Done;

Outcome executed(std::uint64_t request, std::uint64_t version) { return {Done::executed, request, {version, request, version * 31}}; }

raft::Stored single(Slot slot) { return raft::found(FakeView::kHistory, raft::Configuration{{FakeView::id(slot)}, {}}); }

TEST(OneLeaderPerTerm, TwoMembersLeadTheSameTerm) {
  FakeView world(2);
  const auto checker = one_leader_per_term(world);
  for (const Slot slot : {0u, 1u}) world.restart(slot, single(slot));  // each alone: both lead term 2
  world.lead(0);
  checker->stepped(0);
  checker->stepped(0);
  checker->stepped(1);
  EXPECT_FALSE(world.violation_);
  world.lead(1);
  ASSERT_EQ(world.core(0)->term(), world.core(1)->term());
  checker->stepped(1);
  EXPECT_TRUE(world.broke("one_leader_per_term"));
}

TEST(OneVotePerTerm, ASecondCandidateIsNotVotedFor) {
  FakeView world(3);
  const auto checker = one_vote_per_term(world);
  checker->sent(0, world.message(0, 1, wire::VoteReply{false, 5, true}, 5));
  checker->sent(0, world.message(0, 1, wire::VoteReply{false, 5, true}, 5));   // repeated
  checker->sent(0, world.message(0, 2, wire::VoteReply{false, 5, false}, 5));  // refused
  checker->sent(0, world.message(0, 2, wire::VoteReply{true, 5, true}, 4));    // promises nothing
  checker->sent(0, world.message(0, 2, wire::VoteReply{false, 6, true}, 6));
  checker->sent(1, world.message(1, 2, wire::VoteReply{false, 5, true}, 5));
  EXPECT_FALSE(world.violation_);
  checker->sent(0, world.message(0, 2, wire::VoteReply{false, 5, true}, 5));
  EXPECT_TRUE(world.broke("one_vote_per_term"));
}

TEST(OneVotePerTerm, ACandidateHasItsOwnVote) {
  FakeView world(3);
  const auto checker = one_vote_per_term(world);
  checker->sent(0, world.message(0, 1, wire::VoteReply{false, 5, true}, 5));
  checker->sent(0, world.message(0, 2, wire::VoteRequest{true, 6, 1, 1}, 5));
  EXPECT_FALSE(world.violation_);
  checker->sent(0, world.message(0, 2, wire::VoteRequest{false, 5, 1, 1}, 5));
  EXPECT_TRUE(world.broke("one_vote_per_term"));
}

TEST(LogsEqual, AnotherEntryAtTheSameIndex) {
  FakeView world(2);
  const auto checker = logs_equal(world);
  checker->applied(0, world.entry(2, 2), {});
  checker->applied(1, world.entry(2, 2), {});
  checker->applied(1, world.entry(2, 2), {});  // again, after a restart
  EXPECT_FALSE(world.violation_);
  checker->applied(0, world.entry(3, 2, 7), {});
  checker->applied(1, world.entry(3, 3, 7), {});  // of another term
  EXPECT_TRUE(world.broke("logs_equal"));
}

TEST(LogsEqual, ASurvivorKeepsWhatItHadAndNoMore) {
  FakeView world(2);
  const auto checker = logs_equal(world);
  for (const std::uint64_t index : {2u, 3u, 4u}) checker->applied(1, world.entry(index, 2), {});
  world.member(0).machine.apply(world.entry(2, 2));
  raft::Stored survivor = world.disk(0);
  survivor.log.push_back(world.entry(2, 2));
  world.restart(0, raft::recovered(survivor, FakeView::id(0), {0x42, 9}));
  checker->recovered(0, FakeView::kHistory);
  checker->applied(0, world.entry(2, 2), {});
  checker->applied(0, world.entry(3, 3), {});  // what only the other had is lost, rightly
  EXPECT_FALSE(world.violation_);
  checker->applied(0, world.entry(2, 9), {});
  EXPECT_TRUE(world.broke("logs_equal"));
}

TEST(StatesEqual, TheSameIndexIsTheSameState) {
  FakeView world(2);
  const auto checker = states_equal(world);
  for (const Slot slot : {0u, 1u}) {
    world.member(slot).machine.apply(world.entry(2, 2, 7));
    checker->applied(slot, world.entry(2, 2, 7), {});
  }
  EXPECT_FALSE(world.violation_);
  world.member(0).machine.apply(world.entry(3, 2, 8));
  checker->applied(0, world.entry(3, 2, 8), {});
  world.member(1).machine.apply(world.entry(3, 2, 9));
  checker->applied(1, world.entry(3, 2, 9), {});
  EXPECT_TRUE(world.broke("states_equal"));
}

TEST(StatesEqual, ASnapshotIsOfTheEntryThatItNames) {
  FakeView world(1);
  const auto checker = states_equal(world);
  world.member(0).machine.apply(world.entry(2, 2, 7));
  checker->installed(0, {2, 2, world.machine(0).encode()});
  EXPECT_FALSE(world.violation_);
  checker->installed(0, {5, 2, world.machine(0).encode()});
  EXPECT_TRUE(world.broke("states_equal"));
}

TEST(AcknowledgedNeverLost, ALeaderWithoutIt) {
  FakeView world(2);
  const auto checker = acknowledged_never_lost(world);
  world.restart(0, single(0));
  world.lead(0);  // its log: the configuration and its own first entry
  const std::uint64_t last = world.core(0)->last_index();
  checker->applied(1, world.entry(last, 2, 7), executed(7, 1));
  checker->answered(FakeView::kHistory, {7, true, world.now_}, {1, 7, 31});
  checker->stepped(0);
  EXPECT_FALSE(world.violation_);
  const auto other = acknowledged_never_lost(world);
  other->applied(1, world.entry(last + 1, 2, 8), executed(8, 2));
  other->stepped(1);  // leads nobody
  other->answered(FakeView::kHistory, {8, true, world.now_}, {2, 8, 62});
  other->stepped(0);
  EXPECT_TRUE(world.broke("acknowledged_never_lost"));
}

TEST(AcknowledgedNeverLost, WhatWasNeverCarriedOut) {
  FakeView world(1);
  const auto checker = acknowledged_never_lost(world);
  checker->answered(FakeView::kHistory, {7, false, world.now_}, {0, 0, 0});  // a read
  EXPECT_FALSE(world.violation_);
  checker->answered(FakeView::kHistory, {7, true, world.now_}, {1, 7, 31});
  EXPECT_TRUE(world.broke("acknowledged_never_lost"));
}

TEST(AppliedOnce, ASecondTime) {
  FakeView world(2);
  const auto checker = applied_once(world);
  checker->applied(0, world.entry(2, 2, 7), executed(7, 1));
  checker->applied(1, world.entry(2, 2, 7), executed(7, 1));
  checker->applied(0, world.entry(3, 2, 7), {Done::repeated, 7, {}});
  EXPECT_FALSE(world.violation_);
  checker->applied(1, world.entry(3, 2, 7), executed(7, 2));
  EXPECT_TRUE(world.broke("applied_once"));
}

class LinearisableTest : public ::testing::Test {
 protected:
  Operation ask(std::uint64_t request, bool write) {
    world_.now_ += 1ms;
    const Operation operation{request, write, world_.now_};
    checker_->asked(operation);
    return operation;
  }
  void tell(const Operation& operation, std::uint64_t version, std::uint64_t by) {
    world_.now_ += 1ms;
    checker_->answered(FakeView::kHistory, operation, {version, by, version * 31});
  }
  FakeView world_{1};
  std::unique_ptr<Checker> checker_ = linearisable(world_);
};

TEST_F(LinearisableTest, ConcurrentOnesMayBeInAnyOrder) {
  const Operation first = ask(1, true), second = ask(2, true), third = ask(3, false), fourth = ask(4, false);
  tell(second, 1, 2);
  tell(fourth, 0, 0);  // began before
  tell(third, 2, 1);   // sees a write that nobody was told of yet
  tell(first, 2, 1);
  tell(ask(5, false), 2, 1);
  EXPECT_FALSE(world_.violation_);
}
TEST_F(LinearisableTest, AReadGoesBack) {
  tell(ask(1, true), 1, 1);
  tell(ask(2, true), 2, 2);
  tell(ask(3, false), 1, 1);
  EXPECT_TRUE(world_.broke("linearisable"));
}
TEST_F(LinearisableTest, AReadGoesBackBehindAnotherRead) {
  ask(1, true);
  tell(ask(2, false), 1, 1);
  tell(ask(3, false), 0, 0);
  EXPECT_TRUE(world_.broke("linearisable"));
}
TEST_F(LinearisableTest, AWriteIsOrderedBeforeOneThatWasAnsweredEarlier) {
  ask(1, true);
  tell(ask(2, false), 1, 1);
  tell(ask(3, true), 1, 3);
  EXPECT_TRUE(world_.broke("linearisable"));
}
TEST_F(LinearisableTest, AWriteOfWhichOnlyReadsTellTookAnEarlierPlace) {
  const Operation reader = ask(9, false);  // may see old versions: began first
  ask(1, true);
  tell(ask(2, false), 5, 1);
  ask(3, true);
  tell(reader, 4, 3);
  EXPECT_TRUE(world_.broke("linearisable"));
}
TEST_F(LinearisableTest, AWriteHasOneVersion) {
  const Operation write = ask(1, true);
  tell(write, 1, 1);
  tell(write, 1, 1);
  EXPECT_FALSE(world_.violation_);
  tell(write, 2, 1);
  EXPECT_TRUE(world_.broke("linearisable"));
}
TEST_F(LinearisableTest, AVersionHasOneWriter) {
  const Operation first = ask(1, true), second = ask(2, true);
  tell(first, 1, 1);
  tell(second, 1, 2);
  EXPECT_TRUE(world_.broke("linearisable"));
}
TEST_F(LinearisableTest, HistoriesAreJudgedApart) {
  tell(ask(1, true), 9, 1);
  checker_->answered({2, {1, 1}}, ask(2, false), {3, 5, 93});
  EXPECT_FALSE(world_.violation_);
}

TEST(DurableBeforeSent, VotesEntriesSnapshotsAndTerms) {
  FakeView world(3);
  raft::HardState& hard = world.member(0).disk.hard;
  hard.term = 5;
  hard.vote_for(FakeView::id(1));
  const auto checker = durable_before_sent(world);
  wire::AppendReply appended;
  appended.accepted = true;
  appended.match = 1;  // the founders' entry
  wire::SnapshotReply chunk;
  chunk.index = 9;
  checker->sent(0, world.message(0, 1, wire::VoteReply{false, 5, true}, 5));
  checker->sent(0, world.message(0, 2, wire::VoteReply{false, 4, true}, 5));  // of an earlier term: was
  checker->sent(0, world.message(0, 2, wire::VoteReply{true, 6, true}, 6));
  checker->sent(0, world.message(0, 1, appended, 5));
  checker->sent(0, world.message(0, 1, chunk, 5));  // asks for more
  EXPECT_FALSE(world.violation_);
  checker->stepping(0, raft::Received{world.message(1, 0, wire::Hello{}, 5).message});
  chunk.done = true;
  appended.match = 2;
  for (const raft::Send& bad :
       {world.message(0, 2, wire::VoteReply{false, 5, true}, 5), world.message(0, 1, wire::VoteReply{false, 6, true}, 6),
        world.message(0, 1, wire::VoteRequest{false, 5, 1, 1}, 5), world.message(0, 1, wire::AppendRequest{}, 6),
        world.message(0, 1, appended, 5), world.message(0, 1, chunk, 5), world.message(0, 1, wire::Welcome{{3, 3}}, 5)}) {
    world.mend();
    checker->sent(0, bad);
    EXPECT_TRUE(world.broke("durable_before_sent")) << bad.message.body.index();
  }
}

TEST(MajorityHoldsCommitted, TheDisksSay) {
  FakeView world(3);
  const auto checker = majority_holds_committed(world);
  checker->stepping(0, raft::Tick{});
  world.lead(0);  // the others agree, and write nothing
  ASSERT_TRUE(world.core(0)->ready());
  checker->stepped(0);
  EXPECT_TRUE(world.broke("majority_holds_committed"));
  world.mend();
  world.member(2).disk.log = world.disk(0).log;
  checker->stepped(0);
  EXPECT_FALSE(world.violation_);
}

TEST(OneChangeAtATime, ASecondBeforeTheFirstIsCommitted) {
  FakeView world(3);
  world.options_.broken_rule = "one-change-at-a-time";
  world.restart(0, raft::found(FakeView::kHistory, world.configuration_));
  const auto checker = one_change_at_a_time(world);
  world.lead(0);
  checker->stepped(0);
  for (const std::uint64_t number : {1u, 2u}) {
    EXPECT_FALSE(world.violation_);
    checker->stepping(0, raft::Tick{});
    world.step(0, raft::ChangeAsked{number, raft::ChangeKind::add_learner, {0xd1, 50 + number}});
    checker->stepped(0);
  }
  EXPECT_TRUE(world.broke("one_change_at_a_time"));
}

TEST(ConfigurationIsTheLogs, WhatIsOnTheDiskIsInForce) {
  FakeView world(3);
  const auto checker = configuration_is_the_logs(world);
  checker->started(0);
  EXPECT_FALSE(world.violation_);
  world.member(0).durable.voters.pop_back();
  world.member(0).persists = true;  // more is to come
  checker->stepping(0, raft::Persisted{1});
  checker->stepped(0);
  EXPECT_FALSE(world.violation_);
  world.member(0).persists = false;
  checker->stepped(0);
  EXPECT_TRUE(world.broke("configuration_is_the_logs"));
}

TEST(ElapsedIsTrue, NeitherBackNorAhead) {
  FakeView world(1);
  raft::LogEntry entry = world.entry(2, 2);
  for (const bool ahead : {true, false}) {
    const auto checker = elapsed_is_true(world);
    world.mend();
    entry.index = 2;
    entry.elapsed = 50s;
    checker->applied(0, entry, {});
    EXPECT_FALSE(world.violation_);
    entry.index = 3;
    entry.elapsed = ahead ? Duration(102s) : Duration(49s);  // 100 s have passed
    checker->applied(0, entry, {});
    EXPECT_TRUE(world.broke("elapsed_is_true"));
  }
}

TEST(RolledBackAndFailedDisk, StayMute) {
  wire::AppendReply appended;
  appended.accepted = true;
  appended.match = 3;
  for (const bool rolled_back : {true, false}) {
    FakeView world(2);
    const auto checker = rolled_back ? rolled_back_stays_mute(world) : failed_disk_stays_mute(world);
    const raft::Send vote = world.message(0, 1, wire::VoteReply{false, 5, true}, 5);
    checker->sent(0, vote);
    (rolled_back ? world.member(0).truth.rolled_back : world.member(0).truth.disk_failed) = true;
    checker->sent(1, vote);
    checker->sent(0, world.message(0, 1, wire::VoteReply{false, 5, false}, 5));
    checker->sent(0, world.message(0, 1, wire::Hello{}, 5));
    EXPECT_FALSE(world.violation_);
    for (const raft::Send& bad : {vote, world.message(0, 1, appended, 5), world.message(0, 1, wire::AppendRequest{}, 5),
                                  world.message(0, 1, wire::VoteRequest{false, 5, 1, 1}, 5)}) {
      world.mend();
      checker->sent(0, bad);
      EXPECT_TRUE(world.broke(checker->name()));
    }
  }
}

TEST(HistoriesApart, ForeignersAreNotObeyedNorAnswered) {
  FakeView world(2);
  const auto checker = histories_apart(world);
  raft::Received foreign{world.message(1, 0, wire::AppendRequest{}, 5).message};
  foreign.message.header.history.number = 2;
  checker->stepping(0, foreign);
  checker->sent(0, world.message(0, 1, wire::Fenced{}, 5));
  checker->stepped(0);
  checker->stepping(0, raft::Received{world.message(1, 0, wire::AppendRequest{}, 5).message});
  checker->sent(0, world.message(0, 1, wire::AppendReply{}, 5));
  checker->stepped(0);
  EXPECT_FALSE(world.violation_);
  checker->stepping(0, foreign);
  checker->sent(0, world.message(0, 1, wire::AppendReply{}, 5));
  EXPECT_TRUE(world.broke("histories_apart"));
  world.mend();
  checker->stepping(0, foreign);
  world.step(0, raft::Received{world.message(1, 0, wire::AppendRequest{}, 8).message});  // raises its term
  checker->stepped(0);
  EXPECT_TRUE(world.broke("histories_apart"));
}

TEST(TermsNeedAMajority, WhoHearsNobodyBeginsNone) {
  FakeView world(3);
  world.options_.broken_rule = "pre-vote";
  world.restart(0, raft::found(FakeView::kHistory, world.configuration_));
  const auto checker = terms_need_a_majority(world);
  const auto campaign = [&] {
    for (int tries = 0; tries < 100 && world.core(0)->role() != raft::Role::candidate; ++tries) {
      world.now_ += 100ms;
      checker->stepping(0, raft::Tick{});
      world.step(0, raft::Tick{});
      checker->stepped(0);
    }
    ASSERT_EQ(world.core(0)->role(), raft::Role::candidate);
  };
  campaign();
  EXPECT_TRUE(world.broke("terms_need_a_majority"));
}

TEST(TermsNeedAMajority, WhoWasHeardLatelyCounts) {
  FakeView world(3);
  world.options_.broken_rule = "pre-vote";
  world.restart(0, raft::found(FakeView::kHistory, world.configuration_));
  const auto checker = terms_need_a_majority(world);
  for (int tries = 0; tries < 100 && world.core(0)->role() != raft::Role::candidate; ++tries) {
    world.now_ += 100ms;
    checker->stepping(0, raft::Received{world.message(1, 0, wire::Hello{}, 1).message});
    checker->stepped(0);
    checker->stepping(0, raft::Tick{});
    world.step(0, raft::Tick{});
    checker->stepped(0);
  }
  ASSERT_EQ(world.core(0)->role(), raft::Role::candidate);
  EXPECT_FALSE(world.violation_);
}

TEST(CutOffLeaderStepsDown, NotAtOnceButSoon) {
  FakeView world(3);
  const auto checker = cut_off_leader_steps_down(world);
  world.lead(0);
  world.member(0).truth.cut_off_since = world.now_;
  world.member(1).truth.cut_off_since = world.now_;  // leads nobody
  world.now_ += 5s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.now_ += 10s;
  world.member(0).truth.paused = true;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.member(0).truth.paused = false;
  checker->sampled();
  EXPECT_TRUE(world.broke("cut_off_leader_steps_down"));
}

TEST(StallsElectNobody, OnlyWhileNothingElseIsWrong) {
  for (const bool only : {true, false}) {
    FakeView world(3);
    world.only_stalls_ = only;
    const auto checker = stalls_elect_nobody(world);
    world.lead(0);
    checker->stepped(0);
    checker->stepped(1);
    EXPECT_FALSE(world.violation_);
    world.step(1, raft::Received{world.message(2, 1, wire::AppendRequest{}, world.core(0)->term() + 1).message});
    checker->stepped(1);
    EXPECT_EQ(world.broke("stalls_elect_nobody"), only);
  }
}

TEST(MemoryBounded, ALogThatGrows) {
  FakeView world(1);
  world.restart(0, single(0));
  world.lead(0);
  const auto checker = memory_bounded(world);
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  for (std::uint64_t i = 1; i <= 300; ++i) world.step(0, raft::Propose{i, "x"});
  world.options_.log_entries = 100;  // of the checker: the member was told 100,000
  world.options_.proposals = 10;
  checker->sampled();
  EXPECT_TRUE(world.broke("memory_bounded"));
}

TEST(LeaderAfterHealing, WithinFiveSeconds) {
  FakeView world(3);
  const auto checker = leader_after_healing(world);
  world.now_ += 60s;
  checker->sampled();  // not healed yet
  checker->healed();
  world.now_ += 5s;
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.now_ += 1s;
  checker->sampled();
  EXPECT_TRUE(world.broke("leader_after_healing"));
  world.mend();
  world.lead(0);
  checker->sampled();
  world.now_ += 4s;
  world.member(0).truth.cut_off_since = world.now_;  // leads in name only
  checker->sampled();
  EXPECT_FALSE(world.violation_);
  world.now_ += 2s;
  checker->sampled();
  EXPECT_TRUE(world.broke("leader_after_healing"));
}

TEST(Converges, AllMembersAreLikeTheLeader) {
  FakeView world(2);
  const auto checker = converges(world);
  checker->at_rest();
  EXPECT_TRUE(world.broke("converges"));  // nobody leads
  world.mend();
  world.lead(0);
  for (std::uint64_t index = 1; index <= world.core(0)->commit(); ++index) world.member(0).machine.apply(world.entry(index, 1));
  checker->at_rest();
  EXPECT_TRUE(world.broke("converges"));  // the other knows nothing
  world.mend();
  world.restart(0, single(0));
  world.lead(0);
  world.member(0).machine = RegisterMachine(100, raft::Rules{});
  for (std::uint64_t index = 1; index <= world.core(0)->commit(); ++index) world.member(0).machine.apply(world.entry(index, 1));
  checker->at_rest();
  EXPECT_FALSE(world.violation_) << world.violation_->what;  // alone
}

}  // namespace
}  // namespace dtrain::sim::council
