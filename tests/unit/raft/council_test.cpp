// What a council does when nothing is broken, and when its members come and go.
#include <algorithm>

#include "tests/unit/raft/tiny_council.h"

namespace dtrain::raft {
namespace {

TEST(Council, OneVoterCommitsAsSoonAsDurable) {
  TinyCouncil council;
  council.found(1);
  const Instant begun = council.now;
  EXPECT_EQ(council.elect(), 1u);
  EXPECT_TRUE(council.commit("a"));
  EXPECT_LT(council.now - begun, 10ms);
  EXPECT_EQ(council.at(1).state, "a;");
}

TEST(Council, ThreeElectAndCommit) {
  TinyCouncil council;
  council.found(3);
  council.elect();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(council.commit(std::to_string(i)));
  council.run(300ms);
  EXPECT_TRUE(council.equal());
  EXPECT_EQ(council.violations, std::vector<std::string>{});
}

TEST(Council, AnIdleOneOnlyBeats) {
  TinyCouncil council;
  council.found(3);
  council.elect();
  council.run(1s);
  const auto term = council.raft(council.leader()).term();
  council.log_of_messages.clear();
  council.run(60s);
  EXPECT_EQ(council.raft(council.leader()).term(), term);
  EXPECT_LE(council.log_of_messages.size(), 2u * 2 * 605);
}

TEST(Council, LearnersHearTheLeaderLessOftenAndEverythingAtOnce) {
  TinyCouncil council;
  council.found(3);
  council.elect();
  for (std::uint64_t number : {4u, 5u}) {
    council.start(number);
    ASSERT_EQ(council.change(ChangeKind::add_learner, number), Refusal::none);
  }
  council.run(2s);
  const std::uint64_t leader = council.leader();
  std::map<std::uint64_t, std::size_t> to;
  council.lose = [&](const MemberId& member, const wire::RaftMessage&) {
    for (std::uint64_t number = 1; number <= 5; ++number)
      if (member == TinyCouncil::id(number)) ++to[number];
    return false;
  };
  council.run(10s);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    if (number == leader) continue;
    EXPECT_LE(to[number], number <= 3 ? 105u : 22u) << number;
    EXPECT_GE(to[number], number <= 3 ? 95u : 18u) << number;
  }
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(council.commit(std::to_string(i)));
    council.run(20ms);
    EXPECT_TRUE(council.equal()) << "the last one is not awaited";
  }
  EXPECT_EQ(council.violations, std::vector<std::string>{});
}

TEST(Council, AKilledLeaderIsReplacedAtOnceWhenItsConnectionIsRefused) {
  std::vector<Duration> took;
  for (int i = 0; i < 20; ++i) {
    TinyCouncil council;
    council.found(3);
    const std::uint64_t old = council.elect();
    council.run(1s + i * 7ms);
    council.kill(old);
    const Instant died = council.now;
    council.run(5ms);
    for (std::uint64_t number = 1; number <= 3; ++number) council.give(number, LeaderGone{TinyCouncil::id(old)});
    ASSERT_TRUE(council.commit("x"));
    took.push_back(council.now - died);
    EXPECT_TRUE(council.violations.empty());
  }
  std::ranges::sort(took);
  EXPECT_LT(took[10], 120ms);
  EXPECT_LT(took.back(), 400ms);
}

TEST(Council, ASilentLeaderIsReplacedWithinThreeSeconds) {
  for (int i = 0; i < 20; ++i) {
    TinyCouncil council;
    council.found(3);
    const std::uint64_t old = council.elect();
    council.run(1s + i * 7ms);
    council.stop(old);
    const Instant stopped = council.now;
    ASSERT_TRUE(council.run_until([&] { return council.leader() != old && council.leader() != 0; }));
    EXPECT_LT(council.now - stopped, 3s);
    council.resume(old);
    council.run(500ms);
    EXPECT_EQ(council.raft(old).role(), Role::follower);
    EXPECT_TRUE(council.equal());
  }
}

TEST(Council, PausesOf800MillisecondsElectNobody) {
  TinyCouncil council;
  council.found(3);
  const std::uint64_t leader = council.elect();
  council.run(1s);
  const auto term = council.raft(leader).term();
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t paused = static_cast<std::uint64_t>(i) % 3 + 1;
    council.stop(paused);
    council.run(800ms);
    council.resume(paused);
    council.run(150ms + (i % 10) * 10ms);
  }
  EXPECT_EQ(council.leader(), leader);
  EXPECT_EQ(council.raft(leader).term(), term);
}

TEST(Council, GrowsFromOneToFiveAndShrinksAgain) {
  TinyCouncil council;
  council.found(1);
  EXPECT_TRUE(council.commit("first"));
  for (std::uint64_t number = 2; number <= 5; ++number) {
    council.add_voter(number);
    EXPECT_TRUE(council.commit("with " + std::to_string(number)));
  }
  EXPECT_EQ(council.raft(council.leader()).configuration().voters, TinyCouncil::ids(1, 5));
  council.run(300ms);
  EXPECT_TRUE(council.equal());
  for (std::uint64_t number = 5; number >= 2; --number) {
    council.make_leader(1);
    EXPECT_EQ(council.change(ChangeKind::remove, number), Refusal::none);
    council.kill(number);
  }
  EXPECT_TRUE(council.commit("alone"));
  EXPECT_EQ(council.raft(1).configuration().voters, TinyCouncil::ids(1, 1));
  EXPECT_EQ(council.violations, std::vector<std::string>{});
}

TEST(Council, AllKilledAtOnceLoseNothing) {
  TinyCouncil council;
  council.found(5);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(council.commit(std::to_string(i)));
  for (std::uint64_t number = 1; number <= 5; ++number) council.kill(number);
  for (std::uint64_t number = 1; number <= 5; ++number) council.start(number);
  EXPECT_TRUE(council.commit("after"));
  council.run(300ms);
  EXPECT_EQ(council.at(1).state, "0;1;2;3;4;5;6;7;8;9;after;");
  EXPECT_TRUE(council.equal());
}

TEST(Council, AFollowerThatIsFarBehindGetsTheSnapshotInChunks) {
  RaftOptions options;
  options.snapshot_chunk_bytes = 10;
  options.kept_entries = 2;
  TinyCouncil council(options);
  council.found(3);
  const std::uint64_t leader = council.elect(), behind = leader % 3 + 1;
  council.kill(behind);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(council.commit("entry " + std::to_string(i)));
  TinyCouncil::Member& at_leader = council.at(leader);
  council.give(leader, Snapshotted{at_leader.raft->commit(), at_leader.state});
  EXPECT_EQ(at_leader.raft->snapshot_index(), at_leader.raft->commit());
  council.start(behind);
  EXPECT_TRUE(council.commit("later"));
  ASSERT_TRUE(council.run_until([&] { return council.equal(); }));
  EXPECT_EQ(council.raft(behind).counters().snapshots_installed, 1u);
  EXPECT_EQ(council.raft(behind).configuration(), council.raft(leader).configuration());
  // And it is on its disk.
  council.run(300ms);
  council.kill(behind);
  council.start(behind);
  council.run(1s);
  EXPECT_TRUE(council.equal());
  EXPECT_EQ(council.raft(behind).snapshot_index(), at_leader.raft->snapshot_index());
}

// Of tiny entries most of the memory is not payload.
TEST(Council, WhatIsKeptBeforeASnapshotIsBoundedInMemory) {
  RaftOptions options;
  options.kept_bytes = 10 * sizeof(LogEntry);
  TinyCouncil council(options);
  council.found(1);
  council.elect();
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(council.commit("e"));
  council.give(1, Snapshotted{council.raft(1).commit(), council.at(1).state});
  const std::uint64_t kept = council.raft(1).snapshot_index() + 1 - council.raft(1).first_index();
  EXPECT_GE(kept, 5u);
  EXPECT_LE(kept, 10u);
}

// The state goes out more slowly than snapshots are made: what comes after the one under way is kept until it is there.
TEST(Council, AFollowerCatchesUpWhateverIsSnapshottedMeanwhile) {
  RaftOptions options;
  options.snapshot_chunk_bytes = 4;
  options.kept_entries = 0;
  TinyCouncil council(options);
  council.found(3);
  const std::uint64_t leader = council.elect(), behind = leader % 3 + 1;
  council.kill(behind);
  const auto work = [&] {
    EXPECT_TRUE(council.commit("entry"));
    council.give(leader, Snapshotted{council.raft(leader).commit(), council.at(leader).state});
  };
  for (int i = 0; i < 40; ++i) work();
  council.start(behind);
  council.run(200ms);
  for (int i = 0; i < 400 && council.raft(behind).counters().snapshots_installed == 0; ++i) work();
  EXPECT_EQ(council.raft(behind).counters().snapshots_installed, 1u);
  for (int i = 0; i < 20; ++i) work();
  EXPECT_TRUE(council.run_until([&] { return council.equal(); }));
  EXPECT_EQ(council.raft(behind).counters().snapshots_installed, 1u);
  EXPECT_EQ(council.raft(leader).counters().snapshots_sent, 1u);
}

TEST(Council, ReadsAreAnsweredByAMajority) {
  TinyCouncil council;
  council.found(3);
  const std::uint64_t leader = council.elect();
  EXPECT_TRUE(council.commit("w"));
  council.give(leader, ReadAsked{500});
  EXPECT_FALSE(council.answer(leader, 500));
  council.run(5ms);
  ASSERT_TRUE(council.answer(leader, 500));
  EXPECT_EQ(council.answer(leader, 500)->refusal, Refusal::none);
  EXPECT_EQ(council.answer(leader, 500)->index, council.raft(leader).commit());
  council.give(leader % 3 + 1, ReadAsked{501});
  ASSERT_TRUE(council.answer(leader % 3 + 1, 501));
  EXPECT_EQ(council.answer(leader % 3 + 1, 501)->refusal, Refusal::not_leader);
  EXPECT_EQ(council.answer(leader % 3 + 1, 501)->leader, TinyCouncil::id(leader));
}

TEST(Council, LeadershipIsHandedOverWithoutSilence) {
  TinyCouncil council;
  council.found(3);
  const std::uint64_t leader = council.elect(), next = leader % 3 + 1;
  const Instant asked = council.now;
  council.give(leader, TransferAsked{TinyCouncil::id(next)});
  ASSERT_TRUE(council.run_until([&] { return council.leader() == next; }));
  EXPECT_LT(council.now - asked, 50ms);
  council.run(200ms);
  EXPECT_EQ(council.raft(leader).role(), Role::follower);
}

TEST(Council, ARecoveredSurvivorLeadsAHistoryOfItsOwn) {
  TinyCouncil council;
  council.found(3);
  council.make_leader(1);
  EXPECT_TRUE(council.commit("kept"));
  council.run(300ms);
  for (std::uint64_t number = 1; number <= 3; ++number) council.kill(number);
  council.at(1).disk = recovered(council.at(1).disk, TinyCouncil::id(1), {5, 6});
  council.start(1);
  EXPECT_TRUE(council.commit("alone"));
  EXPECT_EQ(council.at(1).state, "kept;alone;");
  EXPECT_EQ(council.raft(1).history(), (History{2, {5, 6}}));
  EXPECT_EQ(council.raft(1).configuration(), (Configuration{TinyCouncil::ids(1, 1), {}, 2}));
  // Who is of the old history is refused, and has no effect.
  council.start(2);
  council.run(3s);
  EXPECT_EQ(council.raft(2).history(), TinyCouncil::kHistory);
  EXPECT_EQ(council.leader(), 1u);
}

// The owner of a copy finds that its state is not what the entries lead to. Nothing that its log holds may go: others count on it.
TEST(State, IsReplacedWhereTheOwnerWantsItAndTheLogIsKept) {
  TinyCouncil council;
  council.found(3);
  council.make_leader(1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(council.commit("c" + std::to_string(i)));
  council.run(200ms);
  TinyCouncil::Member& wrong = council.at(3);
  wrong.state += "rot";
  ASSERT_FALSE(council.equal());
  const auto send = [&] {
    council.give(1, Snapshotted{council.raft(1).commit(), council.at(1).state});
    council.give(1, SendState{TinyCouncil::id(3)});
  };
  send();
  council.run(200ms);
  EXPECT_FALSE(council.equal()) << "it did not ask";
  ASSERT_TRUE(council.commit("between"));
  council.run(200ms);
  council.give(3, WantState{});
  // More is committed while it is sent: that comes behind it.
  council.lose = [&](const MemberId& to, const wire::RaftMessage& message) {
    return to == TinyCouncil::id(3) && std::holds_alternative<wire::SnapshotChunk>(message.body);
  };
  send();
  const std::uint64_t sent = council.raft(1).commit();
  ASSERT_TRUE(council.commit("meanwhile"));
  council.lose = {};
  council.run(5s);
  EXPECT_TRUE(council.equal());
  EXPECT_EQ(council.raft(3).snapshot_index(), sent);
  EXPECT_EQ(council.raft(3).last_index(), council.raft(1).last_index());
  EXPECT_EQ(wrong.disk.log.back().index, council.raft(1).last_index());
  council.kill(3);
  council.start(3);
  council.make_leader(3);
  council.run(200ms);
  EXPECT_TRUE(council.equal()) << "after a start, too";
  EXPECT_TRUE(council.violations.empty());
}

// It had more entries than the snapshot covers, handed out already: they come again.
TEST(State, EntriesBehindTheNewStateAreHandedOutAgain) {
  TinyCouncil council;
  council.found(3);
  council.make_leader(1);
  ASSERT_TRUE(council.commit("a"));
  council.run(200ms);
  council.give(1, Snapshotted{council.raft(1).commit(), council.at(1).state});
  const std::uint64_t covered = council.raft(1).snapshot_index();
  ASSERT_TRUE(council.commit("b"));
  ASSERT_TRUE(council.commit("c"));
  council.run(200ms);
  council.at(3).state = "rot";
  council.give(3, WantState{});
  council.give(1, SendState{TinyCouncil::id(3)});
  council.run(1s);
  EXPECT_EQ(council.raft(3).snapshot_index(), covered);
  EXPECT_EQ(council.at(3).state, "a;b;c;");
  ASSERT_TRUE(council.commit("d"));
  council.run(200ms);
  EXPECT_TRUE(council.equal());
}

}  // namespace
}  // namespace dtrain::raft
