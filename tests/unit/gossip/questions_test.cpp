// The last question before a verdict, and questions whose link was lost: what TCP lost it says again only some seconds later.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/unit/gossip/lone_member.h"

namespace dtrain::gossip {
namespace {

using wire::MemberState;
using L = LoneMember;

TEST(Questions, TheLastOneBeforeAVerdictAlsoGoesOverAConnectionOfItsOwn) {
  L lone(2);
  lone.run_answering(10s, {0});
  ASSERT_EQ(lone.state(0), MemberState::dead);
  std::vector<std::uint64_t> anew, beside;
  for (const Send& send : lone.out.sends)
    if (const auto* ping = std::get_if<wire::Ping>(&send.body))
      (send.anew ? anew : beside).push_back(send.member == L::id(0) ? ping->sequence : 0);
  ASSERT_EQ(anew.size(), 1u);
  EXPECT_NE(anew.front(), 0u) << "asked is who is silent";
  EXPECT_EQ(std::ranges::count(beside, anew.front()), 1) << "and over the link that is kept";
}

// Many may be asked at once when many have failed: one connection each.
TEST(Questions, WhoHasNoLinkIsAskedOverANewOneOnly) {
  L lone(100);
  std::uint64_t stranger = 99;
  lone.run_answering(1s);
  std::set<MemberId> linked;
  ASSERT_TRUE(lone.out.links);
  for (const Peer& peer : lone.out.links->peers) linked.insert(peer.id);
  while (linked.contains(L::id(stranger))) --stranger;
  lone.give(LinkLost{L::identity(stranger)->address});  // closed, idle
  lone.give(GoneChecked{L::identity(stranger)->address, GoneChecked::Answer::accepts});
  lone.clear();
  lone.hear({L::suspect(stranger, L::kInc, 1), L::suspect(stranger, L::kInc, 2), L::suspect(stranger, L::kInc, 4),
             L::suspect(stranger, L::kInc, 5)},
            1);
  lone.run_answering(6s, {stranger});
  ASSERT_EQ(lone.state(stranger), MemberState::dead);
  std::size_t anew = 0;
  std::map<std::uint64_t, std::size_t> copies;
  for (const Send& send : lone.out.sends)
    if (const auto* ping = std::get_if<wire::Ping>(&send.body); ping != nullptr && send.member == L::id(stranger)) {
      anew += send.anew;
      ++copies[ping->sequence];
    }
  EXPECT_EQ(anew, 1u);
  for (const auto& [sequence, count] : copies) EXPECT_EQ(count, 1u) << sequence;
}

TEST(Questions, AnAnswerToOneDoesNotProveThatTheLinkIsUp) {
  for (const bool up : {false, true}) {
    L lone(2);
    lone.give(LinkLost{L::identity(0)->address});
    lone.give(GoneChecked{L::identity(0)->address, GoneChecked::Answer::accepts});
    Instant answered{}, suspected{};
    lone.run(20s, [&] {
      for (const Send& send : std::vector<Send>(lone.out.sends)) {
        if (!send.anew || answered != Instant{}) continue;
        answered = lone.now;
        if (up) lone.give(LinkUp{L::identity(0)->address});
        lone.hear({L::alive(0, L::kInc + 1)}, 0);
        lone.receive(L::pong_to(std::get<wire::Ping>(send.body), L::kInc + 1), 0, L::kInc + 1);
        lone.clear();
      }
      lone.answer_pings({0});
      if (answered != Instant{} && suspected == Instant{} && lone.state(0) == MemberState::suspect) suspected = lone.now;
    });
    ASSERT_NE(answered, Instant{});
    ASSERT_NE(suspected, Instant{});
    EXPECT_EQ(suspected - answered > MembershipOptions{}.connect_deadline, !up);
  }
}

TEST(Questions, WhatWasAskedOnALinkThatIsLostIsAskedAgainWhenItIsUp) {
  L lone(2);
  std::uint64_t sequence = 0;
  lone.run(3s, [&] {
    if (sequence != 0) return;
    for (const auto& [to, ping] : lone.sent<wire::Ping>())
      if (to == L::id(0)) sequence = ping.sequence;
    lone.answer_pings({0});
    if (sequence == 0) return;
    lone.give(LinkLost{L::identity(0)->address});
    lone.clear();
    lone.give(LinkUp{L::identity(0)->address});
    const auto again = lone.sent<wire::Ping>();
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again.front().first, L::id(0));
    EXPECT_EQ(again.front().second.sequence, sequence);
  });
  EXPECT_NE(sequence, 0u);
}

// Four of twelve agents were cut off on a machine that was busy. The timers of a node that runs late are set anew, and those that were
// due first to the latest time: a verdict came before the failures of the roll call by which it should have been judged.
TEST(Questions, AVerdictOfANodeThatRanLateWaitsForItsRollCall) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    L lone(11, {}, {}, seed);
    lone.run_answering(3s);
    lone.clear();
    std::vector<Instant> asked;         // the last questions
    std::vector<std::uint64_t> silent;  // all, once the first of them was asked
    const auto each = [&] {
      for (const Send& send : lone.out.sends)
        if (send.anew) asked.push_back(lone.now);
      if (!asked.empty() && silent.empty())
        for (std::uint64_t i = 0; i < 11; ++i) silent.push_back(i);
      lone.answer_pings(silent);
      lone.clear();
    };
    for (const std::uint64_t accused : {0, 1, 2}) {
      for (const std::uint64_t by : {7, 8, 9, 10}) lone.hear({L::suspect(accused, L::kInc, by)}, by);
      lone.run(50ms, each);
    }
    for (int step = 0; step < 1000 && asked.empty(); ++step) {
      lone.now = std::max(lone.now, lone->deadline());
      lone.give(Tick{});
      each();
    }
    ASSERT_FALSE(asked.empty());
    const Instant roll_call = asked.front();
    lone.run(MembershipOptions{}.probe_total - 1ms, each);
    ASSERT_EQ(asked.size(), 3u);
    ASSERT_GT(asked.back(), roll_call);
    lone.now += 300ms;
    lone.give(Tick{});
    each();
    lone.run(3s, each);
    for (const std::uint64_t accused : {0, 1, 2}) EXPECT_EQ(lone.state(accused), MemberState::suspect) << accused << ", seed " << seed;
    EXPECT_TRUE(lone->frozen()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace dtrain::gossip
