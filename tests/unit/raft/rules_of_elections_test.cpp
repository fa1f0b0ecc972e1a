// Rules 1, 8, 9, 11, 14: each kept, and what happens with it switched off.
#include "common/raft/rules.h"
#include "tests/unit/raft/lone_voter.h"

namespace dtrain::raft {
namespace {

using wire::AppendReply;
using wire::Fenced;
using wire::FenceReason;
using wire::VoteReply;
using wire::VoteRequest;

TEST(Rules, NamesAreOnesOwn) {
  const std::vector<std::string> names = Rules::names();
  EXPECT_EQ(names.size(), static_cast<std::size_t>(enum_last(Rule{})) + 1);
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_FALSE(Rules(names[i]).hold(static_cast<Rule>(i)));
    EXPECT_TRUE(Rules("").hold(static_cast<Rule>(i)));
    EXPECT_TRUE(Rules("no-such-rule").hold(static_cast<Rule>(i)));
  }
}

TEST(PreVote, WhoCannotWinBeginsNoTerm) {
  for (const std::string& broken : kept_and("pre-vote")) {
    LoneVoter voter(3, {}, broken);
    voter.pass(10s);  // nobody answers
    EXPECT_EQ(voter->term() == 1, broken.empty());
    EXPECT_GE(voter.sent<VoteRequest>().size(), 10u);
  }
}

TEST(PreVote, IsRefusedWhileALeaderIsHeard) {
  LoneVoter voter(3);
  voter.receive(2, 1, voter.request(1, 1));
  voter.receive(3, 1, VoteRequest{true, 2, 9, 9});
  ASSERT_EQ(voter.sent<VoteReply>().size(), 1u);
  EXPECT_FALSE(voter.sent<VoteReply>()[0].granted);
  voter.out.clear();
  voter.now += 999ms;
  voter.receive(3, 1, VoteRequest{true, 2, 9, 9});
  EXPECT_FALSE(voter.sent<VoteReply>().at(0).granted);
  voter.out.clear();
  voter.now += 1ms;
  voter.receive(3, 1, VoteRequest{true, 2, 9, 9});
  EXPECT_TRUE(voter.sent<VoteReply>().at(0).granted);
  EXPECT_EQ(voter->term(), 1u) << "nothing is promised";
}

TEST(PreVote, OfAHigherTermDoesNotUnseatALeaderThatIsHeard) {
  LoneVoter voter(3);
  voter.receive(2, 1, voter.request(1, 1));
  voter.receive(3, 8, VoteRequest{true, 9, 9, 9});
  EXPECT_EQ(voter->term(), 1u);
  EXPECT_EQ(voter->leader(), LoneVoter::id(2));
  LoneVoter leader(3);
  leader.lead();
  leader.receive(3, 8, VoteRequest{true, 9, 9, 9});
  EXPECT_EQ(leader->role(), Role::leader);
}

TEST(PreVote, OfTwoThatAskAtOnceOneWithdraws) {
  for (const std::uint64_t other_index : {std::uint64_t{1}, std::uint64_t{0}}) {
    LoneVoter voter(3);
    voter.pass(voter->deadline() - voter.now);
    ASSERT_EQ(voter->role(), Role::pre_candidate);
    voter.receive(2, 1, VoteRequest{true, 2, other_index, other_index});  // the same log and a larger id; or no log
    EXPECT_EQ(voter->role(), other_index == 1 ? Role::follower : Role::pre_candidate);
    EXPECT_EQ(voter.sent<VoteReply>().at(0).granted, other_index == 1);
  }
}

TEST(LeaderGone, StartsAPreVoteAtOnceAndAnswersOne) {
  LoneVoter voter(3);
  voter.receive(2, 1, voter.request(1, 1));
  voter.give(LeaderGone{LoneVoter::id(3)});  // not the leader
  EXPECT_GT(voter->deadline() - voter.now, 999ms);
  voter.give(LeaderGone{LoneVoter::id(2)});
  EXPECT_LE(voter->deadline() - voter.now, 60ms);
  voter.receive(3, 1, VoteRequest{true, 2, 1, 1});
  EXPECT_TRUE(voter.sent<VoteReply>().at(0).granted);
  // The leader is there after all.
  voter.receive(2, 1, voter.request(1, 1));
  EXPECT_EQ(voter->leader(), LoneVoter::id(2));
  EXPECT_GT(voter->deadline() - voter.now, 999ms);
}

TEST(CheckQuorum, ALeaderWithoutAMajorityStepsDown) {
  for (const std::string& broken : kept_and("check-quorum")) {
    LoneVoter voter(3, {}, broken);
    voter.lead();
    voter.pass(1900ms);
    EXPECT_EQ(voter->role(), Role::leader);
    voter.pass(300ms);
    EXPECT_EQ(voter->role() == Role::leader, !broken.empty());
  }
  LoneVoter voter(3);
  voter.lead();
  for (int i = 0; i < 100; ++i) voter.pass(100ms), voter.acknowledge(2, 1);
  EXPECT_EQ(voter->role(), Role::leader) << "two of three are a majority";
}

TEST(CheckQuorum, ALeaderThatWasStoppedListensFirst) {
  LoneVoter voter(3);
  voter.lead();
  voter.now += 5s;  // SIGSTOP
  voter.give(Tick{});
  EXPECT_EQ(voter->role(), Role::leader);
  voter.pass(600ms);
  EXPECT_EQ(voter->role(), Role::follower);
}

TEST(Stall, AFollowerThatWasStoppedListensFirst) {
  LoneVoter voter(3);
  voter.receive(2, 1, voter.request(1, 1));
  voter.now += 5s;
  voter.give(Tick{});
  EXPECT_EQ(voter->role(), Role::follower);
  voter.receive(3, 1, VoteRequest{true, 2, 1, 1});
  EXPECT_FALSE(voter.sent<VoteReply>().at(0).granted);
  voter.pass(500ms);
  EXPECT_EQ(voter->role(), Role::pre_candidate);
}

TEST(Refusal, CarriesTheOwnTerm) {
  for (const std::string& broken : kept_and("refusal-carries-own-term")) {
    LoneVoter voter(3, {7}, broken);
    voter.receive(2, 3, VoteRequest{true, 4, 9, 3});
    ASSERT_TRUE(voter.header_of<VoteReply>());
    EXPECT_FALSE(voter.sent<VoteReply>()[0].granted);
    EXPECT_EQ(voter.header_of<VoteReply>()->term, broken.empty() ? 7u : 3u);
    voter.receive(2, 3, voter.request(1, 1));  // a leader of an older term
    ASSERT_TRUE(voter.header_of<AppendReply>());
    EXPECT_EQ(voter.header_of<AppendReply>()->term, broken.empty() ? 7u : 3u);
    EXPECT_TRUE(voter->leader().none());
  }
}

TEST(Refusal, OfALaterTermEndsAReign) {
  LoneVoter voter(3);
  voter.lead();
  voter.give(Propose{9, "x"});
  voter.receive(2, 8, AppendReply{1, false, 0, 0, 0, 0});
  EXPECT_EQ(voter->role(), Role::follower);
  EXPECT_EQ(voter->term(), 8u);
  EXPECT_EQ(voter.answer(9)->refusal, Refusal::unknown);
}

TEST(Vote, IsGivenByLogAndTermAlone) {
  LoneVoter voter(3, {2, 3});
  const auto granted = [&](std::uint64_t term, std::uint64_t last_index, std::uint64_t last_term) {
    voter.out.clear();
    voter.receive(2, term, VoteRequest{false, term, last_index, last_term});
    return voter.sent<VoteReply>().at(0).granted;
  };
  EXPECT_FALSE(granted(4, 9, 2)) << "longer, but older";
  EXPECT_FALSE(granted(5, 2, 3)) << "shorter";
  EXPECT_TRUE(granted(6, 3, 3)) << "the same";
  EXPECT_TRUE(granted(7, 1, 4)) << "newer";
  EXPECT_FALSE(granted(6, 9, 9)) << "a past term";
}

TEST(Vote, IsGivenByALearnerToo) {
  Stored stored = found(LoneVoter::kHistory, {{LoneVoter::id(2), LoneVoter::id(3)}, {LoneVoter::id(1)}});
  LoneVoter voter(stored, "");
  voter.receive(2, 2, VoteRequest{false, 2, 1, 1});
  EXPECT_TRUE(voter.sent<VoteReply>().at(0).granted);
  EXPECT_EQ(voter->deadline(), kNever) << "but it does not stand itself";
}

TEST(Vote, IsSoughtByWhoIsRemovedByAnEntryThatMayNotBeCommitted) {
  // Leader 2 removed this voter, and lost the entry with its process: it has less than this one and cannot
  // win.
  Stored stored = found(LoneVoter::kHistory, LoneVoter::voters(2));
  stored.log.push_back(LoneVoter::reconfiguration(2, 1, {{LoneVoter::id(2)}, {}}));
  LoneVoter voter(stored, "");
  voter.receive(2, 2, VoteRequest{false, 2, 1, 1});
  EXPECT_FALSE(voter.sent<VoteReply>().at(0).granted);
  voter.pass(2s);
  ASSERT_EQ(voter->role(), Role::pre_candidate) << "its own vote does not count";
  voter.receive(2, 2, VoteReply{true, 3, true});
  voter.receive(2, 3, VoteReply{false, 3, true});
  ASSERT_EQ(voter->role(), Role::leader);
  voter.acknowledge(2, 2);
  EXPECT_EQ(voter->commit(), 0u);
  voter.acknowledge(2, 3);
  EXPECT_EQ(voter->commit(), 3u);
  EXPECT_EQ(voter->role(), Role::follower) << "removed";
  voter.pass(10s);
  EXPECT_EQ(voter->role(), Role::follower);
}

TEST(Vote, OneInATerm) {
  for (const std::string& broken : kept_and("one-vote-per-term")) {
    LoneVoter voter(3, {}, broken);
    voter.receive(2, 5, VoteRequest{false, 5, 9, 4});
    voter.receive(2, 5, VoteRequest{false, 5, 9, 4});  // repeated
    voter.restart();
    voter.receive(3, 5, VoteRequest{false, 5, 9, 4});
    EXPECT_EQ(voter.sent<VoteReply>().at(0).granted, !broken.empty());
  }
}

TEST(Vote, OneInATermAlsoDuringAHandOver) {
  LoneVoter voter(3);
  voter.receive(2, 1, voter.request(1, 1));
  voter.receive(2, 1, wire::TimeoutNow{1});
  ASSERT_EQ(voter->role(), Role::candidate);
  EXPECT_EQ(voter->term(), 2u);
  voter.receive(3, 2, VoteRequest{false, 2, 9, 1});
  EXPECT_FALSE(voter.sent<VoteReply>().at(0).granted);
  voter.receive(2, 1, wire::TimeoutNow{1});  // late, of the old term
  EXPECT_EQ(voter->term(), 2u);
}

TEST(Durable, NoVoteIsSentOrCountedBeforeItIs) {
  for (const std::string& broken : kept_and("durable-before-send")) {
    LoneVoter voter(3, {}, broken);
    voter.slow = true;
    voter.receive(2, 5, VoteRequest{false, 5, 9, 4});
    EXPECT_EQ(voter.sent<VoteReply>().empty(), broken.empty());
    if (!broken.empty()) continue;
    ASSERT_TRUE(voter.writing);
    EXPECT_EQ(voter.writing->hard->voted_for(), LoneVoter::id(2));
    ASSERT_EQ(voter.writing->sends.size(), 1u) << "it carries what depends on it";
    voter.land();
    EXPECT_TRUE(voter.sent<VoteReply>().at(0).granted);
  }
  LoneVoter voter(3);
  voter.slow = true;
  voter.stand();
  ASSERT_EQ(voter->role(), Role::candidate);
  voter.receive(2, 2, VoteReply{false, 2, true});
  EXPECT_EQ(voter->role(), Role::candidate) << "the own vote is not durable";
  voter.land();
  EXPECT_EQ(voter->role(), Role::leader);
}

// ---------------------------------------------------------------- lives, histories, disks

TEST(FreshLife, AnOlderOneIsRefusedAndTold) {
  for (const std::string& broken : kept_and("fresh-life-only")) {
    LoneVoter voter(3, {}, broken);
    voter.receive(2, 1, voter.request(1, 1), {7, 70});
    voter.restart(false);  // it is remembered durably
    voter.pass(1s);
    for (const Life life : {Life{6, 1}, Life{7, 71}}) {
      voter.out.clear();
      voter.receive(2, 5, VoteRequest{false, 5, 9, 4}, life);
      EXPECT_EQ(voter.sent<VoteReply>().empty(), broken.empty());
      ASSERT_EQ(voter.sent<Fenced>(2).size(), broken.empty() ? 1u : 0u);
      if (!broken.empty()) break;
      EXPECT_EQ(voter.sent<Fenced>(2)[0].seen, (Life{7, 70}));
      EXPECT_EQ(voter.sent<Fenced>(2)[0].yours, life);
    }
    voter.out.clear();
    voter.receive(2, 6, VoteRequest{false, 6, 9, 4}, {8, 1});
    EXPECT_EQ(voter.sent<VoteReply>().size(), 1u) << "a newer one is welcome";
  }
}

TEST(FreshLife, WhoIsToldVotesNoMore) {
  for (const std::string& broken : kept_and("fresh-life-only")) {
    LoneVoter voter(3, {}, broken);
    voter.lead();
    const Life mine = voter->life();
    voter.receive(2, 2, Fenced{FenceReason::stale_life, {mine.number + 1, 0}, {mine.number, mine.mark + 1}});
    EXPECT_EQ(voter->mute(), Mute::none) << "said of another life";
    voter.receive(2, 2, Fenced{FenceReason::stale_life, {mine.number - 1, 0}, mine});
    EXPECT_EQ(voter->mute(), Mute::none) << "said by one who knows less";
    voter.receive(9, 2, Fenced{FenceReason::stale_life, {mine.number + 1, 0}, mine});
    EXPECT_EQ(voter->mute() == Mute::stale_life, broken.empty());
    if (!broken.empty()) continue;
    EXPECT_EQ(voter->role(), Role::follower);
    EXPECT_EQ(voter->deadline(), kNever);
    voter.out.clear();
    voter.receive(2, 9, VoteRequest{false, 9, 9, 8});
    EXPECT_TRUE(voter.out.sends.empty());
    for (int life = 0; life < 3; ++life) voter.restart();
    EXPECT_EQ(voter->mute(), Mute::stale_life) << "a later life is no younger a copy";
  }
}

TEST(FreshLife, BeforeItVotesTheOthersAreAsked) {
  LoneVoter voter(3);
  voter.restart(false);
  voter.give(Tick{});
  voter.receive(2, 5, VoteRequest{false, 5, 9, 4});
  EXPECT_TRUE(voter.sent<VoteReply>().empty());
  voter.receive(2, 5, wire::Welcome{voter->life()});
  voter.receive(3, 5, wire::Welcome{{1, 1}});  // of another life
  voter.receive(2, 5, VoteRequest{false, 5, 9, 4});
  EXPECT_TRUE(voter.sent<VoteReply>().empty());
  voter.receive(3, 5, wire::Welcome{voter->life()});
  voter.receive(2, 5, VoteRequest{false, 5, 9, 4});
  EXPECT_EQ(voter.sent<VoteReply>().size(), 1u);
  // Nobody there: after a second it votes all the same.
  voter.restart(false);
  voter.pass(999ms);
  EXPECT_GE(voter.sent<wire::Hello>(2).size(), 4u);
  voter.receive(2, 6, VoteRequest{false, 6, 9, 4});
  EXPECT_TRUE(voter.sent<VoteReply>().empty());
  voter.pass(1ms);
  voter.receive(2, 6, VoteRequest{false, 6, 9, 4});
  EXPECT_EQ(voter.sent<VoteReply>().size(), 1u);
}

TEST(FreshLife, UntilThenNothingIsAcknowledgedNorConfirmed) {
  LoneVoter voter(3);
  for (const bool welcomed : {false, true}) {
    voter.restart(welcomed);
    voter.receive(2, 2, voter.request(1, 1, {LoneVoter::entry(2, 2)}));
    voter.receive(2, 2, voter.request(2, 2));
    for (const AppendReply& reply : voter.sent<AppendReply>()) {
      EXPECT_TRUE(reply.accepted);
      EXPECT_EQ(reply.match, welcomed ? 2u : 0u);
      EXPECT_EQ(reply.round, welcomed ? 1u : 0u);
    }
    EXPECT_EQ(voter.sent<AppendReply>().size(), 2u);
    voter.out.clear();
    voter.receive(2, 2, wire::SnapshotChunk{1, 2, 2, LoneVoter::voters(3), {}, {}, 0, 0, ""});
    EXPECT_EQ(voter.sent<wire::SnapshotReply>().size(), welcomed ? 1u : 0u);
  }
}

TEST(FreshLife, AWelcomeSaysThatTheLifeIsDurable) {
  LoneVoter voter(3);
  voter.slow = true;
  voter.receive(2, 1, wire::Hello{}, {4, 40});
  EXPECT_TRUE(voter.sent<wire::Welcome>().empty());
  ASSERT_TRUE(voter.writing && voter.writing->hard);
  voter.land();
  ASSERT_EQ(voter.sent<wire::Welcome>(2).size(), 1u);
  EXPECT_EQ(voter.sent<wire::Welcome>(2)[0].yours, (Life{4, 40}));
}

// A member that was removed may be made one again. With an old copy of its disk, in whose configuration are others than now,
// it greets only those that it knows: whoever knew its life then objects.
TEST(FreshLife, IsRememberedOverARemoval) {
  LoneVoter voter(3);
  voter.receive(3, 1, wire::Hello{}, {7, 70});
  voter.receive(2, 2, voter.request(1, 1, {LoneVoter::reconfiguration(2, 2, LoneVoter::voters(2))}, 2));
  voter.receive(2, 2, voter.request(2, 2, {LoneVoter::reconfiguration(3, 2, LoneVoter::voters(3))}, 3));
  voter.out.clear();
  voter.receive(3, 2, wire::Hello{}, {7, 71});
  EXPECT_EQ(voter.sent<Fenced>(3).size(), 1u);
  EXPECT_TRUE(voter.sent<wire::Welcome>(3).empty());
}

TEST(FreshLife, WhoIsNoMemberAnyMoreMakesRoom) {
  LoneVoter voter(3);
  std::uint64_t index = 1;
  for (std::uint64_t learner = 10; learner < 400; ++learner) {
    Configuration with = LoneVoter::voters(3);
    with.learners = {LoneVoter::id(learner)};
    voter.receive(2, 2, voter.request(index, index == 1 ? 1 : 2, {LoneVoter::reconfiguration(index + 1, 2, with)}, index + 1));
    ++index;
    voter.receive(learner, 2, wire::Hello{}, {1, learner});
    EXPECT_FALSE(voter.sent<wire::Welcome>(learner).empty()) << learner;
  }
  EXPECT_LE(voter.disk.hard.lives.size(), wire::kMostVoters + wire::kMostLearners);
}

TEST(FreshLife, OnlyMembersAreRemembered) {
  LoneVoter voter(3);
  for (std::uint64_t stranger = 10; stranger < 1000; ++stranger) voter.receive(stranger, 1, wire::Hello{}, {4, 40});
  EXPECT_LE(voter.disk.hard.lives.size(), 3u);
  EXPECT_TRUE(voter.sent<wire::Welcome>().empty());
}

TEST(History, FencesAnother) {
  for (const std::string& broken : kept_and("history-fences")) {
    LoneVoter voter(3, {}, broken);
    for (const History other : {History{1, {1, 1}}, History{}, History{2, {1, 1}}}) {
      voter.out.clear();
      voter.receive(2, 5, VoteRequest{false, 5, 9, 4}, {1, 1}, other);
      EXPECT_EQ(voter.sent<VoteReply>().empty(), broken.empty());
      EXPECT_EQ(voter.sent<Fenced>().size(), broken.empty() && other < LoneVoter::kHistory ? 1u : 0u);
      if (!broken.empty()) break;
    }
  }
}

TEST(DiskError, StopsVoting) {
  for (const std::string& broken : kept_and("disk-error-stops-voting")) {
    LoneVoter voter(3, {}, broken);
    voter.slow = true;
    voter.receive(2, 5, VoteRequest{false, 5, 9, 4});
    voter.fail_write();
    EXPECT_EQ(voter->mute() == Mute::disk_failed, broken.empty());
    voter.receive(2, 6, VoteRequest{false, 6, 9, 4});
    EXPECT_EQ(voter.writing.has_value(), !broken.empty());
    EXPECT_TRUE(voter.sent<VoteReply>().empty());
  }
  LoneVoter leader(3);
  leader.lead();
  leader.slow = true;
  leader.give(Propose{4, "x"});
  leader.fail_write();
  EXPECT_EQ(leader->role(), Role::follower);
  EXPECT_EQ(leader.answer(4)->refusal, Refusal::unknown);
  EXPECT_EQ(leader->deadline(), kNever);
}

TEST(DiskError, OfThisBootIsRemembered) {
  QuietLog log;
  Raft raft(Self{LoneVoter::id(1), 3, false}, {}, Rng(1), log, found(LoneVoter::kHistory, LoneVoter::voters(1)));
  Outputs out;
  raft.step(Instant{1000s}, Tick{}, out);
  EXPECT_EQ(raft.mute(), Mute::disk_failed);
  EXPECT_FALSE(out.persist);
}

}  // namespace
}  // namespace dtrain::raft
