// Rules 2 to 6, 10, 12, 13: each kept, and what happens with it switched off.
#include "common/raft/ledger_clock.h"
#include "common/raft/request_window.h"
#include "common/raft/rules.h"
#include "tests/unit/raft/lone_voter.h"

namespace dtrain::raft {
namespace {

using wire::AppendReply;
using wire::AppendRequest;

// ---------------------------------------------------------------- 2

// The thesis's figure 3.7: an entry of term 2 reaches a majority only under the leader of term 4.
TEST(OwnTermEntry, OlderEntriesAreCommittedByALaterOneOnly) {
  for (const std::string& broken : kept_and("own-term-entry")) {
    LoneVoter voter(3, {2}, broken);
    voter.stand();
    voter.receive(2, voter->term(), wire::VoteReply{false, voter->term(), true});
    ASSERT_EQ(voter->role(), Role::leader);
    EXPECT_EQ(voter->ready(), !broken.empty());
    voter.acknowledge(2, 2);
    EXPECT_EQ(voter->commit(), broken.empty() ? 0u : 2u);
    if (!broken.empty()) continue;
    voter.acknowledge(2, 3);
    EXPECT_EQ(voter->commit(), 3u);
    EXPECT_EQ(voter.out.committed.at(2).kind, EntryKind::leader);
    EXPECT_TRUE(voter->ready());
  }
}

TEST(OwnTermEntry, UntilThenALeaderServesNothing) {
  LoneVoter voter(3, {2});
  voter.stand();
  voter.receive(2, voter->term(), wire::VoteReply{false, voter->term(), true});
  voter.give(Propose{1, "x"});
  voter.give(ReadAsked{2});
  voter.give(ChangeAsked{3, ChangeKind::add_learner, LoneVoter::id(9)});
  for (const std::uint64_t number : {1u, 2u, 3u}) EXPECT_EQ(voter.answer(number)->refusal, Refusal::not_ready);
}

// ---------------------------------------------------------------- 3

TEST(Acknowledgement, IsOfWhatTheRequestVerified) {
  for (const std::string& broken : kept_and("ack-verified-only")) {
    LoneVoter voter(3, {2, 2, 2}, broken);
    voter.receive(2, 3, voter.request(2, 2, {}));
    voter.receive(2, 3, voter.request(1, 1, {LoneVoter::entry(2, 2)}));
    ASSERT_EQ(voter.sent<AppendReply>().size(), 2u);
    for (const AppendReply& reply : voter.sent<AppendReply>()) {
      EXPECT_TRUE(reply.accepted);
      EXPECT_EQ(reply.match, broken.empty() ? 2u : 4u);
    }
  }
}

TEST(Acknowledgement, CommitsNoFurtherEither) {
  for (const std::string& broken : kept_and("commit-verified-only")) {
    LoneVoter voter(3, {2, 2, 2}, broken);
    voter.receive(2, 3, voter.request(2, 2, {}, 9));
    EXPECT_EQ(voter->commit(), broken.empty() ? 2u : 4u);
  }
}

TEST(Acknowledgement, ARefusalSaysWhereTheLogsMayAgree) {
  LoneVoter voter(3, {2, 2, 5, 5});
  voter.receive(2, 6, voter.request(9, 6));
  voter.receive(2, 6, voter.request(5, 4));
  ASSERT_EQ(voter.sent<AppendReply>().size(), 2u);
  const AppendReply longer = voter.sent<AppendReply>()[0], other = voter.sent<AppendReply>()[1];
  EXPECT_FALSE(longer.accepted || other.accepted);
  EXPECT_EQ(longer.hint_index, 5u);
  EXPECT_EQ(longer.hint_term, 5u);
  EXPECT_EQ(other.hint_index, 3u) << "the entries of term 5 cannot be of a log whose entry 5 is of term 4";
  EXPECT_EQ(other.hint_term, 2u);
}

TEST(Acknowledgement, ALeaderGoesBackByTermsNotByEntries) {
  LoneVoter voter(3, {2, 2, 2, 2, 2, 6, 6, 6});
  voter.stand();
  voter.receive(2, voter->term(), wire::VoteReply{false, voter->term(), true});
  const auto asked = voter.sent<AppendRequest>(2).back();
  EXPECT_EQ(asked.prev_index, 9u);
  voter.out.clear();
  voter.receive(2, voter->term(), AppendReply{asked.round, false, 0, 9, 8, 4});  // has term 4 up to entry 8
  ASSERT_EQ(voter.sent<AppendRequest>(2).size(), 1u);
  EXPECT_EQ(voter.sent<AppendRequest>(2)[0].prev_index, 6u) << "the last of a term up to 4";
}

TEST(Acknowledgement, NonsenseIsDropped) {
  LoneVoter voter(3);
  voter.lead();
  const auto dropped = voter->counters().dropped;
  voter.receive(2, voter->term(), AppendReply{voter.round() + 1, true, 1, 1, 0, 0});
  voter.receive(2, voter->term(), AppendReply{1, true, 99, 1, 0, 0});
  voter.receive(3, voter->term(), voter.request(1, 1));  // another leader of this term
  EXPECT_EQ(voter->counters().dropped, dropped + 3);
  EXPECT_EQ(voter->role(), Role::leader);
  LoneVoter follower(3);
  follower.receive(2, 2, follower.request(1, 1));
  for (const AppendRequest& bad : {follower.request(1, 1, {LoneVoter::entry(7, 2)}), follower.request(1, 1, {LoneVoter::entry(2, 9)}),
                                   follower.request(1, 2, {LoneVoter::entry(2, 1)}), follower.request(wire::kMostIndex, 1),
                                   follower.request(1, 1, {{2, 2, "no configuration", EntryKind::configuration, {}}}),
                                   follower.request(1, 1, {LoneVoter::reconfiguration(2, 2, {})})})
    follower.receive(2, 2, bad);
  EXPECT_EQ(follower->counters().dropped, 6u);
  EXPECT_EQ(follower->last_index(), 1u);
}

// ---------------------------------------------------------------- 4

TEST(Durable, NoAcknowledgementIsSentBeforeItIs) {
  for (const std::string& broken : kept_and("durable-before-send")) {
    LoneVoter voter(3, {}, broken);
    voter.receive(2, 1, voter.request(1, 1));
    voter.out.clear();
    voter.slow = true;
    voter.receive(2, 1, voter.request(1, 1, {LoneVoter::entry(2, 1)}));
    EXPECT_EQ(voter.sent<AppendReply>().empty(), broken.empty());
    if (!broken.empty()) continue;
    voter.receive(2, 1, voter.request(2, 1));  // a heartbeat is answered all the same, by what is durable
    ASSERT_EQ(voter.sent<AppendReply>().size(), 1u);
    EXPECT_EQ(voter.sent<AppendReply>()[0].match, 1u);
    voter.land();
    ASSERT_EQ(voter.sent<AppendReply>().size(), 2u);
    EXPECT_EQ(voter.sent<AppendReply>()[1].match, 2u);
  }
}

TEST(Durable, ALeaderCountsItselfWhenItIs) {
  for (const std::string& broken : kept_and("durable-before-send")) {
    LoneVoter voter(3, {}, broken);
    voter.lead();
    voter.slow = true;
    voter.give(Propose{1, "x"});
    EXPECT_FALSE(voter.answer(1));
    voter.acknowledge(2, 3);
    EXPECT_EQ(voter.answer(1).has_value(), !broken.empty());
    if (!broken.empty()) continue;
    voter.land();
    EXPECT_EQ(voter.answer(1)->refusal, Refusal::none);
    // But the others are a majority without it.
    voter.give(Propose{2, "y"});
    voter.acknowledge(2, 4);
    voter.acknowledge(3, 4);
    EXPECT_TRUE(voter.answer(2));
  }
}

TEST(Durable, AnAcknowledgementOfWhatWasCutOffIsNeverSent) {
  LoneVoter voter(3);
  voter.receive(2, 2, voter.request(1, 1));
  voter.out.clear();
  voter.slow = true;
  voter.receive(2, 2, voter.request(1, 1, {LoneVoter::entry(2, 2)}));  // on its way to the disk
  voter.receive(2, 2, voter.request(2, 2, {LoneVoter::entry(3, 2)}));  // waits behind it
  voter.receive(3, 3, voter.request(1, 1, {LoneVoter::entry(2, 3)}));  // cuts both off
  voter.land_all();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> acknowledged;  // term, match
  for (const Send& send : voter.out.sends)
    if (const auto* reply = std::get_if<AppendReply>(&send.message.body); reply && reply->match > 1)
      acknowledged.emplace_back(send.message.header.term, reply->match);
  // Entry 2 of term 2 was on the disk before it was cut off there; entry 3 never was.
  EXPECT_EQ(acknowledged, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{2, 2}, {3, 2}}));
  EXPECT_EQ(voter.disk.log.size(), 2u);
  EXPECT_EQ(voter.disk.log.back().term, 3u);
}

TEST(Durable, WhatComesMeanwhileGoesTogetherInTheNextWrite) {
  LoneVoter voter(1);
  voter.lead();
  voter.slow = true;
  for (std::uint64_t number = 1; number <= 10; ++number) voter.give(Propose{number, "x"});
  EXPECT_EQ(voter.writing->entries.size(), 1u);
  voter.land();
  EXPECT_TRUE(voter.answer(1));
  EXPECT_FALSE(voter.answer(2));
  EXPECT_EQ(voter.writing->entries.size(), 9u);
  voter.land();
  EXPECT_TRUE(voter.answer(10));
}

// ---------------------------------------------------------------- 5

TEST(Change, OneAtATime) {
  for (const std::string& broken : kept_and("one-change-at-a-time")) {
    LoneVoter voter(3, {}, broken);
    voter.lead();
    voter.give(ChangeAsked{1, ChangeKind::add_learner, LoneVoter::id(8)});
    voter.give(ChangeAsked{2, ChangeKind::add_learner, LoneVoter::id(9)});
    EXPECT_EQ(voter.answer(2).has_value(), broken.empty());
    if (!broken.empty()) continue;
    EXPECT_EQ(voter.answer(2)->refusal, Refusal::change_under_way);
    voter.acknowledge(2, 3);
    EXPECT_EQ(voter.answer(1)->refusal, Refusal::none);
    voter.give(ChangeAsked{3, ChangeKind::add_learner, LoneVoter::id(9)});
    EXPECT_FALSE(voter.answer(3));
  }
}

TEST(Change, ALearnerCatchesUpBeforeItVotes) {
  LoneVoter voter(3);
  voter.lead();
  for (std::uint64_t number = 1; number <= 30; ++number) voter.give(Propose{number, "x"});
  voter.acknowledge_all();
  voter.give(ChangeAsked{100, ChangeKind::add_learner, LoneVoter::id(9)});
  voter.acknowledge_all();
  voter.give(ChangeAsked{101, ChangeKind::promote, LoneVoter::id(9)});
  EXPECT_EQ(voter.answer(101)->refusal, Refusal::not_caught_up);
  const std::uint64_t added = voter->last_index();
  for (std::uint64_t number = 201; number <= 217; ++number) voter.give(Propose{number, "x"});
  voter.acknowledge_all();
  voter.acknowledge(9, added);
  voter.give(ChangeAsked{103, ChangeKind::promote, LoneVoter::id(9)});
  EXPECT_EQ(voter.answer(103)->refusal, Refusal::not_caught_up) << "17 behind";
  voter.acknowledge(9, added + 1);
  voter.give(ChangeAsked{102, ChangeKind::promote, LoneVoter::id(9)});
  EXPECT_FALSE(voter.answer(102));
  EXPECT_TRUE(voter->configuration().votes(LoneVoter::id(9))) << "in force at once";
}

TEST(Change, ALearnerHasAcknowledgedBeforeItVotes) {
  LoneVoter voter(1);
  voter.lead();
  voter.give(ChangeAsked{1, ChangeKind::add_learner, LoneVoter::id(9)});
  ASSERT_EQ(voter.answer(1)->refusal, Refusal::none);
  voter.give(ChangeAsked{2, ChangeKind::promote, LoneVoter::id(9)});
  EXPECT_EQ(voter.answer(2)->refusal, Refusal::not_caught_up) << "the log is short, but nothing of it is there";
  voter.acknowledge(9, voter->last_index() - 1);
  voter.give(ChangeAsked{3, ChangeKind::promote, LoneVoter::id(9)});
  EXPECT_EQ(voter.answer(3)->refusal, Refusal::not_caught_up);
  voter.acknowledge(9, voter->last_index());
  voter.give(ChangeAsked{4, ChangeKind::promote, LoneVoter::id(9)});
  EXPECT_TRUE(voter->configuration().votes(LoneVoter::id(9)));
}

TEST(Change, ALeaderThatRemovesItselfHandsOverFirst) {
  for (const ChangeKind kind : {ChangeKind::remove, ChangeKind::demote}) {
    LoneVoter voter(3);
    voter.lead();
    voter.give(ChangeAsked{1, kind, LoneVoter::id(1)});
    EXPECT_EQ(voter.answer(1)->refusal, Refusal::transferring);
    EXPECT_EQ(voter.sent<wire::TimeoutNow>().size(), 1u);
    EXPECT_EQ(voter->configuration(), LoneVoter::voters(3));
    voter.give(Propose{2, "x"});
    EXPECT_EQ(voter.answer(2)->refusal, Refusal::transferring);
    for (int i = 0; i < 12; ++i) voter.pass(100ms), voter.acknowledge_all();  // nobody takes over
    voter.give(Propose{3, "x"});
    EXPECT_FALSE(voter.answer(3)) << "given up";
  }
}

TEST(Change, WhatCannotBeIsRefused) {
  LoneVoter alone(1);
  alone.lead();
  const auto refusal = [](LoneVoter& voter, ChangeKind kind, std::uint64_t member) {
    voter.give(ChangeAsked{77, kind, LoneVoter::id(member)});
    const auto answer = voter.answer(77);
    voter.out.answers.clear();
    return answer ? answer->refusal : Refusal::unknown;
  };
  EXPECT_EQ(refusal(alone, ChangeKind::remove, 1), Refusal::last_voter);
  EXPECT_EQ(refusal(alone, ChangeKind::demote, 1), Refusal::last_voter);
  EXPECT_EQ(refusal(alone, ChangeKind::add_learner, 1), Refusal::already);
  EXPECT_EQ(refusal(alone, ChangeKind::add_learner, 0), Refusal::no_such_member);
  EXPECT_EQ(refusal(alone, ChangeKind::promote, 2), Refusal::no_such_member);
  EXPECT_EQ(refusal(alone, ChangeKind::remove, 2), Refusal::no_such_member);
  for (std::uint64_t member = 10; member < 10 + wire::kMostLearners; ++member)
    EXPECT_EQ(refusal(alone, ChangeKind::add_learner, member), Refusal::none);
  EXPECT_EQ(refusal(alone, ChangeKind::add_learner, 10 + wire::kMostLearners), Refusal::full);
  LoneVoter follower(3);
  EXPECT_EQ(refusal(follower, ChangeKind::remove, 2), Refusal::not_leader);
}

// ---------------------------------------------------------------- 6, 7

TEST(Configuration, ThatIsCutOffRollsBack) {
  for (const std::string& broken : kept_and("truncated-config-rolls-back")) {
    LoneVoter voter(3, {}, broken);
    voter.receive(2, 2, voter.request(1, 1, {LoneVoter::reconfiguration(2, 2, LoneVoter::voters(4))}));
    EXPECT_EQ(voter->configuration(), LoneVoter::voters(4)) << "in force as soon as it is in the log";
    voter.receive(3, 3, voter.request(1, 1, {LoneVoter::entry(2, 3)}));
    EXPECT_EQ(voter->configuration(), LoneVoter::voters(broken.empty() ? 3 : 4));
    voter.restart();
    EXPECT_EQ(voter->configuration(), LoneVoter::voters(3));
  }
}

TEST(Configuration, OfASnapshotIsThatOfItsLastEntry) {
  LoneVoter voter(3);
  voter.receive(2, 2, voter.request(1, 1, {LoneVoter::entry(2, 2), LoneVoter::reconfiguration(3, 2, LoneVoter::voters(4))}, 2));
  voter.give(Snapshotted{2, "state"});
  EXPECT_EQ(voter.disk.snapshot->configuration, wire::encode_configuration(LoneVoter::voters(3)));
  EXPECT_EQ(voter->configuration(), LoneVoter::voters(4));
  voter.receive(3, 3, voter.request(2, 2, {LoneVoter::entry(3, 3)}));
  EXPECT_EQ(voter->configuration(), LoneVoter::voters(3)) << "rolled back to what the snapshot holds";
  voter.restart();
  EXPECT_EQ(voter->configuration(), LoneVoter::voters(3));
}

// ---------------------------------------------------------------- 10

TEST(RequestWindow, AppliesOnce) {
  for (const std::string& broken : kept_and("applied-once")) {
    RequestWindow window{Rules(broken)};
    using Verdict = RequestWindow::Verdict;
    EXPECT_EQ(window.judge({{1, 1}, 5}, 10).verdict, Verdict::fresh);
    const auto again = window.judge({{1, 1}, 5}, 11);
    EXPECT_EQ(again.verdict, broken.empty() ? Verdict::repeated : Verdict::fresh);
    EXPECT_EQ(again.index, broken.empty() ? 10u : 11u);
    EXPECT_EQ(window.judge({{1, 2}, 5}, 12).verdict, Verdict::fresh);
    EXPECT_EQ(window.judge({{}, 5}, 13).verdict, Verdict::unminted);
    EXPECT_EQ(window.judge({{1, 3}, 14}, 14).verdict, Verdict::unminted);
  }
}

TEST(RequestWindow, RefusesWhatIsOlderThanItRemembers) {
  using Verdict = RequestWindow::Verdict;
  RequestWindow window;
  EXPECT_EQ(window.judge({{1, 1}, 9}, 10).verdict, Verdict::fresh);
  EXPECT_EQ(window.judge({{1, 1}, 9}, 9 + kRequestWindow).verdict, Verdict::repeated);
  EXPECT_EQ(window.judge({{1, 1}, 9}, 10 + kRequestWindow).verdict, Verdict::too_old);
  EXPECT_EQ(window.judge({{1, 2}, 9}, 11 + kRequestWindow).verdict, Verdict::too_old);
  EXPECT_EQ(window.size(), 0u);
}

// Against a twin that never forgets.
TEST(RequestWindow, ForgettingChangesNoVerdict) {
  using Verdict = RequestWindow::Verdict;
  constexpr std::uint64_t kWindow = 20;
  Rng rng(5);
  RequestWindow window(Rules(), kWindow);
  std::map<std::uint64_t, std::uint64_t> applied, minted;
  for (std::uint64_t index = 1; index < 5000; ++index) {
    const std::uint64_t request = 1 + rng.below(index / 10 + 1);
    const std::uint64_t mint = minted.try_emplace(request, rng.below(index)).first->second;
    const auto judged = window.judge({{0, request}, mint}, index);
    if (index - mint > kWindow) {
      EXPECT_EQ(judged.verdict, Verdict::too_old);
    } else if (applied.contains(request)) {
      EXPECT_EQ(judged.verdict, Verdict::repeated);
      EXPECT_EQ(judged.index, applied[request]);
    } else {
      EXPECT_EQ(judged.verdict, Verdict::fresh);
      applied[request] = index;
    }
    EXPECT_LE(window.size(), kWindow + 1);
    if (index % 50 != 0) continue;
    RequestWindow copy(Rules(), kWindow);
    ASSERT_TRUE(copy.decode(window.encode()));
    EXPECT_EQ(copy.encode(), window.encode());
    window = copy;
  }
}

TEST(RequestWindow, DamagedBytesAreRefused) {
  RequestWindow window(Rules(), 2);
  ASSERT_EQ(window.judge({{1, 1}, 0}, 1).verdict, RequestWindow::Verdict::fresh);
  const std::string good = window.encode();
  std::string later = good, none = good;
  later[7] = 2, none[15] = none[23] = 0;
  for (const std::string& bad : {good + "x", good + good, later + good, none, later + later + later + later}) {
    EXPECT_FALSE(window.decode(bad));
    EXPECT_EQ(window.encode(), good);
  }
  EXPECT_TRUE(window.decode(""));
  EXPECT_EQ(window.size(), 0u);
}

// ---------------------------------------------------------------- 12

TEST(Read, IsConfirmedAfterItWasAsked) {
  for (const std::string& broken : kept_and("read-index-confirmed")) {
    LoneVoter voter(3, {}, broken);
    voter.lead();
    const std::uint64_t before = voter.round();
    voter.give(ReadAsked{1});
    EXPECT_EQ(voter.answer(1).has_value(), !broken.empty());
    if (!broken.empty()) continue;
    EXPECT_EQ(voter.round(), before + 1) << "asks at once";
    voter.receive(2, voter->term(), AppendReply{before, true, 2, 2, 0, 0});
    EXPECT_FALSE(voter.answer(1)) << "answers a question that was asked before";
    voter.give(Propose{2, "x"});
    voter.give(ReadAsked{3});
    EXPECT_EQ(voter.round(), before + 1) << "shares the next round";
    voter.receive(2, voter->term(), AppendReply{before + 1, true, 2, 2, 0, 0});
    EXPECT_EQ(voter.answer(1)->index, 2u);
    EXPECT_FALSE(voter.answer(3));
    EXPECT_EQ(voter.round(), before + 2);
    voter.receive(3, voter->term(), AppendReply{before + 2, false, 0, 2, 1, 1});  // its log differs, but it follows
    EXPECT_TRUE(voter.answer(3));
  }
}

TEST(Read, IsRefusedByWhoLeadsNoMore) {
  LoneVoter voter(3);
  voter.lead();
  voter.give(ReadAsked{1});
  voter.receive(2, 9, AppendReply{});
  EXPECT_EQ(voter.answer(1)->refusal, Refusal::not_leader);
  LoneVoter alone(1);
  alone.lead();
  alone.give(ReadAsked{2});
  EXPECT_EQ(alone.answer(2)->refusal, Refusal::none);
}

// ---------------------------------------------------------------- 13

TEST(Elapsed, GoesOnWhereTheLastLeadersStood) {
  for (const std::string& broken : kept_and("elapsed-from-leader")) {
    LoneVoter voter(3, {}, broken);
    AppendRequest request = voter.request(1, 1);
    request.elapsed = 5s;
    voter.receive(2, 1, request);
    voter.now += 700ms;
    EXPECT_EQ(voter->elapsed(voter.now), 5700ms);
    const Instant heard = voter.now - 700ms;
    voter.lead();
    voter.give(Propose{1, "x"});
    const Duration said = voter.disk.log.back().elapsed;
    EXPECT_EQ(said <= 5s + (voter.now - heard), broken.empty());
    EXPECT_GT(said, 5s);
  }
}

TEST(Elapsed, NeverLessThanTheEntryBefore) {
  Stored stored = found(LoneVoter::kHistory, LoneVoter::voters(1));
  stored.log.back().elapsed = 50s;
  LoneVoter voter(stored, "");
  voter.lead();
  Duration before = 50s;
  for (std::size_t i = 1; i < voter.disk.log.size(); ++i) {
    EXPECT_GE(voter.disk.log[i].elapsed, before);
    before = voter.disk.log[i].elapsed;
  }
  EXPECT_LT(before, 60s);
}

TEST(Elapsed, TheNewestWordOfALeaderCounts) {
  LedgerClock clock(10s);
  clock.start(Instant{100s});
  EXPECT_EQ(clock.now(Instant{101s}), 11s);
  clock.told(30s, Instant{102s});
  EXPECT_EQ(clock.now(Instant{103s}), 31s);
  clock.told(30500ms, Instant{103s});  // our clock went faster
  EXPECT_EQ(clock.now(Instant{103s}), 30500ms);
  clock.told(30100ms, Instant{103s});  // late
  EXPECT_EQ(clock.now(Instant{103s}), 30500ms);
}

// ---------------------------------------------------------------- one turn, one commit

TEST(OneTurn, WhatComesInItGoesToTheDiskTogether) {
  LoneVoter voter(1);
  voter.slow = true;
  for (const char* payload : {"a", "b", "c"}) voter->step(voter.now, Propose{0, payload}, voter.out, true);
  EXPECT_FALSE(voter.out.persist);
  voter.give(Tick{});
  ASSERT_TRUE(voter.writing);
  EXPECT_EQ(voter.writing->entries.size(), 3u);
  voter.land_all();
  EXPECT_EQ(voter->commit(), voter->last_index());
}

TEST(OneTurn, ACouncilOfOneWaitsForNothing) {
  LoneVoter voter(1);
  ASSERT_TRUE(voter->ready());
  EXPECT_EQ(voter->deadline(), kNever);
  voter.give(ChangeAsked{1, ChangeKind::add_learner, LoneVoter::id(2)});
  EXPECT_LE(voter->deadline(), voter.now + 100ms) << "somebody is to be told that it leads";
}

}  // namespace
}  // namespace dtrain::raft
