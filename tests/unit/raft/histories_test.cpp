// recover-quorum: a survivor begins a new history, and who is of the older one follows, but never away from a leader.
#include <gtest/gtest.h>

#include "tests/unit/raft/lone_voter.h"

namespace dtrain::raft {
namespace {

constexpr MemberId kMark{5, 6};
constexpr History kNewer{2, {5, 6}};

// Another member leads the newer history and says so for so long, as often as a leader does.
void hear_newer(LoneVoter& voter, Duration time, Duration every = 100ms) {
  for (Duration passed{}; passed < time; passed += every) {
    voter.receive(3, 1, voter.request(0, 0), {1, 1}, kNewer);
    voter.pass(every);
  }
}
void hear_own(LoneVoter& voter) { voter.receive(2, 1, voter.request(1, 1)); }

TEST(Recover, BeginsANewHistoryInOneWriteAndLeadsIt) {
  LoneVoter voter(3, {1, 1});
  voter.slow = true;
  voter.give(Recover{kMark});
  ASSERT_TRUE(voter.writing);
  ASSERT_TRUE(voter.writing->hard);
  EXPECT_EQ(voter.writing->hard->history, kNewer);
  EXPECT_FALSE(voter.writing->forget);
  ASSERT_EQ(voter.writing->entries.size(), 1u);
  EXPECT_EQ(voter.writing->entries[0].kind, EntryKind::configuration);
  EXPECT_EQ(voter->role(), Role::candidate) << "its own vote counts when it is durable";
  voter.land_all();
  EXPECT_TRUE(voter->ready());
  EXPECT_EQ(voter->history(), kNewer);
  EXPECT_EQ(voter->configuration(), (Configuration{TinyCouncil::ids(1, 1), {}, 2}));
  EXPECT_EQ(voter.out.committed.size(), 5u) << "also what was not committed, its configuration, and its own";
  // The same after a restart.
  voter.slow = false;
  voter.restart();
  EXPECT_TRUE(voter->ready());
  EXPECT_EQ(voter->history(), kNewer);
}

// A crash before the write landed leaves the older history, whole.
TEST(Recover, ACrashLeavesOneHistoryOrTheOther) {
  LoneVoter voter(3, {1, 1});
  voter.slow = true;
  voter.give(Recover{kMark});
  voter.slow = false;
  voter.restart();
  EXPECT_EQ(voter->history(), LoneVoter::kHistory);
  EXPECT_EQ(voter->configuration(), LoneVoter::voters(3));
}

// What waits for the disk may be more than usually goes in one write.
TEST(Recover, TakesTheWholeLogAlong) {
  RaftOptions options;
  options.persist_bytes = 10;
  QuietLog log;
  Raft raft(Self{LoneVoter::id(1), 1, true}, options, Rng(1), log, found(LoneVoter::kHistory, LoneVoter::voters(2)));
  Outputs out;
  Instant now{1000s};
  raft.step(now, Tick{}, out);
  std::vector<LogEntry> entries;
  for (std::uint64_t index = 2; index < 7; ++index) entries.push_back(LoneVoter::entry(index, 1, std::string(20, 'x')));
  raft.step(now, Received{{{LoneVoter::kHistory, 1, LoneVoter::id(2), {1, 1}}, wire::AppendRequest{1, 1, 1, 1, {}, entries}}}, out, true);
  out.clear();
  for (int wait = 0; wait < 100; ++wait) raft.step(now += 50ms, Tick{}, out, true);  // it finds no leader
  raft.step(now, Recover{kMark}, out);
  ASSERT_TRUE(out.persist);
  ASSERT_TRUE(out.persist->hard);
  EXPECT_EQ(out.persist->hard->history, kNewer);
  ASSERT_EQ(out.persist->entries.size(), 6u);
  EXPECT_EQ(out.persist->entries.back().kind, EntryKind::configuration);
}

TEST(Recover, HasNoEffectWhereALeaderIsHeardOrNobodyMayVote) {
  LoneVoter follower(3);
  hear_own(follower);
  follower.give(Recover{kMark});
  EXPECT_EQ(follower->history(), LoneVoter::kHistory);

  LoneVoter leader(1);
  leader.lead();
  leader.give(Recover{kMark});
  EXPECT_EQ(leader->history(), LoneVoter::kHistory);

  LoneVoter failed(3);
  failed.slow = true;
  failed.receive(2, 5, wire::VoteRequest{false, 5, 9, 4});
  failed.fail_write();
  failed.give(Recover{kMark});
  EXPECT_EQ(failed->history(), LoneVoter::kHistory);

  LoneVoter empty(Stored{}, "");
  empty.give(Recover{kMark});
  EXPECT_TRUE(empty->history().none());
}

TEST(NewerHistory, IsFollowedByWhoFindsNoLeaderOfItsOwn) {
  LoneVoter voter(3, {1, 1});
  hear_newer(voter, 9900ms);
  EXPECT_EQ(voter->history(), LoneVoter::kHistory);
  EXPECT_EQ(voter->last_index(), 3u);
  EXPECT_FALSE(voter.out.forgotten);
  voter.slow = true;
  if (voter.writing) voter.land_all();
  voter.out.clear();
  hear_newer(voter, 500ms);
  EXPECT_EQ(voter->history(), kNewer);
  EXPECT_TRUE(voter.out.forgotten);
  // In one write: the older log is gone, the newer history is there.
  ASSERT_TRUE(voter.writing);
  EXPECT_TRUE(voter.writing->forget);
  ASSERT_TRUE(voter.writing->hard);
  EXPECT_EQ(voter.writing->hard->history, kNewer);
  EXPECT_EQ(voter.sent<wire::AppendReply>().size(), 0u) << "not before that is durable";
  voter.land_all();
  EXPECT_TRUE(voter.disk.log.empty());
  EXPECT_EQ(voter.disk.hard.history, kNewer);
  EXPECT_GE(voter.sent<wire::AppendReply>(3).size(), 1u);
}

// Of the time in which it led itself nothing counts, also where the newer leader was not heard at its end.
TEST(NewerHistory, IsNotFollowedSoonByWhoJustLed) {
  LoneVoter voter(3, {1, 1});
  voter.lead();
  for (Duration led{}; led < 1500ms; led += 100ms) {
    voter.acknowledge_all();
    hear_newer(voter, 100ms);
  }
  for (int wait = 0; wait < 15; ++wait) {  // of the newer one nothing is heard for a while, shorter than a silence
    voter.pass(100ms);
    voter.acknowledge_all();
  }
  ASSERT_EQ(voter->role(), Role::leader);
  voter.receive(2, voter->term() + 1, wire::AppendReply{});
  ASSERT_EQ(voter->role(), Role::follower);
  hear_newer(voter, 9800ms);
  EXPECT_EQ(voter->history(), LoneVoter::kHistory);
  hear_newer(voter, 500ms);
  EXPECT_EQ(voter->history(), kNewer);
}

TEST(NewerHistory, WhoFollowedItIsLostToTheOlder) {
  LoneVoter voter(3, {1, 1});
  hear_newer(voter, 11s);
  ASSERT_EQ(voter->history(), kNewer);
  for (const bool restarted : {false, true}) {
    if (restarted) voter.restart();
    voter.out.clear();
    voter.receive(2, 9, wire::VoteRequest{false, 9, 9, 8});
    voter.receive(2, 9, voter.request(0, 0, {LoneVoter::entry(1, 1)}, 1));
    EXPECT_TRUE(voter.sent<wire::VoteReply>().empty());
    EXPECT_TRUE(voter.sent<wire::AppendReply>().empty());
    EXPECT_EQ(voter.sent<wire::Fenced>(2).size(), 2u);
    EXPECT_EQ(voter->history(), kNewer);
    EXPECT_EQ(voter->last_index(), 0u);
  }
  // It is a member like any other there.
  voter.receive(3, 4, voter.request(0, 0, {LoneVoter::reconfiguration(1, 4, {{LoneVoter::id(3)}, {LoneVoter::id(1)}})}, 1), {1, 1}, kNewer);
  EXPECT_EQ(voter->commit(), 1u);
  EXPECT_TRUE(voter->configuration().learns(LoneVoter::id(1)));
}

TEST(NewerHistory, NeverDrawsAFollowerFromItsLeader) {
  for (const std::string broken : {"", "forget-only-without-leader"}) {
    LoneVoter voter(3, {1, 1}, broken);
    for (int second = 0; second < 30; ++second) {
      hear_own(voter);
      hear_newer(voter, 1s);
    }
    EXPECT_EQ(voter->history() == LoneVoter::kHistory, broken.empty());
  }
}

TEST(NewerHistory, NeverDrawsALeaderThatAMajorityHears) {
  for (const std::string broken : {"", "forget-only-without-leader"}) {
    LoneVoter voter(3, {}, broken);
    voter.lead();
    for (int step = 0; step < 300 && voter->history() == LoneVoter::kHistory; ++step) {
      voter.acknowledge_all();
      hear_newer(voter, 100ms);
    }
    EXPECT_EQ(voter->role() == Role::leader && voter->history() == LoneVoter::kHistory, broken.empty());
  }
  LoneVoter sole(1);
  sole.lead();
  hear_newer(sole, 30s);
  EXPECT_TRUE(sole->ready());
}

TEST(NewerHistory, ALeaderThatNobodyHearsFollowsIt) {
  LoneVoter voter(3);
  voter.lead();
  hear_newer(voter, 14s);
  EXPECT_EQ(voter->history(), kNewer);
}

// A process that was stopped finds messages of both: how long it was silent itself says nothing.
TEST(NewerHistory, TheTimeOfAStopDoesNotCount) {
  LoneVoter voter(3, {1, 1});
  hear_newer(voter, 1s);
  voter.now += 60s;
  hear_newer(voter, 9900ms);
  EXPECT_EQ(voter->history(), LoneVoter::kHistory);
  hear_newer(voter, 500ms);
  EXPECT_EQ(voter->history(), kNewer);
}

TEST(NewerHistory, OnlyItsLeaderIsFollowed) {
  LoneVoter voter(3, {1, 1});
  for (int second = 0; second < 300; ++second) {
    voter.receive(3, 9, wire::VoteRequest{true, 9, 99, 8}, {1, 1}, kNewer);
    voter.receive(3, 9, wire::Fenced{wire::FenceReason::other_history, {}, voter->life()}, {1, 1}, kNewer);
    voter.receive(3, 9, wire::Hello{}, {1, 1}, kNewer);
    voter.pass(100ms);
  }
  EXPECT_EQ(voter->history(), LoneVoter::kHistory);
  EXPECT_EQ(voter->mute(), Mute::none);
}

// The survivor's log begins with what the older history decided, configurations included: who has got no further may find
// itself the only voter, or one of a majority, and lacks what the survivor acknowledged since.
TEST(NewerHistory, NobodyIsElectedByAConfigurationOfTheOlder) {
  for (const std::string broken : {"", "own-history-elects"}) {
    LoneVoter voter(3, {1, 1}, broken);
    hear_newer(voter, 11s);
    ASSERT_EQ(voter->history(), kNewer);
    const Configuration alone = LoneVoter::voters(1);
    voter.receive(3, 4, voter.request(0, 0, {LoneVoter::reconfiguration(1, 1, alone), LoneVoter::entry(2, 1)}, 2), {1, 1}, kNewer);
    voter.pass(10s);
    EXPECT_EQ(voter->role() == Role::leader, !broken.empty());
    voter.restart();
    voter.pass(10s);
    EXPECT_EQ(voter->role() == Role::leader, !broken.empty()) << "after a restart";
    if (!broken.empty()) continue;
    voter.receive(3, 4, wire::TimeoutNow{2}, {1, 1}, kNewer);
    EXPECT_EQ(voter->role(), Role::follower);
    // Where the newer history made it a voter it stands like any other.
    Configuration both = LoneVoter::voters(3);
    both.history = kNewer.number;
    voter.receive(3, 4, voter.request(2, 1, {LoneVoter::reconfiguration(3, 4, both)}, 3), {1, 1}, kNewer);
    voter.out.clear();
    voter.pass(10s);
    EXPECT_FALSE(voter.sent<wire::VoteRequest>(2).empty());
  }
}

TEST(NewerHistory, TheOthersComeBackIntoIt) {
  TinyCouncil council;
  council.found(3);
  council.make_leader(1);
  EXPECT_TRUE(council.commit("kept"));
  council.run(300ms);
  council.kill(1);
  council.kill(2);
  council.run(5s);
  council.give(3, Recover{kMark});
  EXPECT_TRUE(council.commit("alone"));
  EXPECT_EQ(council.at(3).state, "kept;alone;");
  // One of the lost comes back with its disk and its id. Its own entries are gone, it has the survivor's.
  council.start(1);
  council.run(1s);
  EXPECT_EQ(council.change(ChangeKind::add_learner, 1), Refusal::none);
  EXPECT_TRUE(council.run_until([&] { return council.equal() && council.at(1).state == "kept;alone;"; }));
  EXPECT_EQ(council.raft(1).history(), kNewer);
  EXPECT_EQ(council.raft(1).counters().histories_given_up, 1u);
  council.run(200ms);
  EXPECT_EQ(council.change(ChangeKind::promote, 1), Refusal::none);
  EXPECT_TRUE(council.commit("both"));
  council.kill(1);
  council.start(1);
  EXPECT_TRUE(council.commit("again"));
  EXPECT_TRUE(council.run_until([&] { return council.equal() && council.at(1).state == "kept;alone;both;again;"; }));
  EXPECT_EQ(council.violations, std::vector<std::string>{});
}

// recover-quorum was wrong: the others had each other. Both go on, and nothing that either acknowledged is lost.
TEST(NewerHistory, AMajorityThatIsAliveStaysTogether) {
  TinyCouncil council;
  council.found(3);
  council.make_leader(1);
  EXPECT_TRUE(council.commit("kept"));
  council.run(300ms);
  council.isolate(3);
  council.run(5s);
  council.give(3, Recover{kMark});
  council.run(1s);
  ASSERT_TRUE(council.raft(3).ready());
  EXPECT_TRUE(council.raft(1).ready());
  council.heal();
  for (const std::uint64_t other : {1u, 2u}) {
    council.give(3, ChangeAsked{90 + other, ChangeKind::add_learner, TinyCouncil::id(other)});
    council.run(1s);
    ASSERT_EQ(council.answer(3, 90 + other)->refusal, Refusal::none);
  }
  council.run(60s);
  EXPECT_TRUE(council.raft(1).ready());
  EXPECT_EQ(council.raft(2).leader(), TinyCouncil::id(1));
  // Also over an election.
  council.kill(1);
  council.start(1);
  council.run(20s);
  EXPECT_EQ(council.raft(1).history(), TinyCouncil::kHistory);
  EXPECT_EQ(council.raft(2).history(), TinyCouncil::kHistory);
  EXPECT_TRUE(council.raft(1).ready() || council.raft(2).ready());
}

}  // namespace
}  // namespace dtrain::raft
