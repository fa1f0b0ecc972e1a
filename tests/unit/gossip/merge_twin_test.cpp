// The merge of rumours against a naive twin: what a node believes does not depend on the order, the grouping
// or the repetition of what it heard, and is what rule 1 says. Nodes that heard the same therefore agree,
// whoever told them and when.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "common/gossip/membership.h"

namespace dtrain::gossip {
namespace {

using wire::MemberState;
using wire::Rumour;
using wire::RumourKind;

constexpr Instant kTwinsStart{1000s};
constexpr MemberId kCluster{9, 9};
constexpr std::uint64_t kTwins = 40, kSubjects = 3;  // few are accused: nothing freezes
constexpr std::uint64_t kTeller = 30, kSelf = 100,
                        kKnown = 10;  // members' numbers; the incarnation that all begin with

class Silent : public Log {
 public:
  using Log::write;
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

MemberId twin_id(std::uint64_t number) { return {0, number}; }
wire::Identity identity(std::uint64_t number) {
  return {.id = twin_id(number),
          .name = "n" + std::to_string(number),
          .address = {"10.0.0." + std::to_string(number), 7400},
          .boot_id = "boot",
          .life = 1,
          .key_print = {}};
}

// What a node believes of the accused.
struct Belief {
  std::uint64_t incarnation = kKnown;
  MemberState state = MemberState::alive;
  std::array<std::uint64_t, wire::kFactKeys> facts{};
  auto operator<=>(const Belief&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Belief& belief) {
    return out << wire::to_string(belief.state) << '(' << belief.incarnation << ')';
  }
};
using Beliefs = std::map<MemberId, Belief>;

class Node {
 public:
  Node()
      : membership_({.identity = identity(kSelf),
                     .cluster_name = "c",
                     .record = {},
                     .found = true,
                     .new_cluster_id = kCluster,
                     .seeds = {},
                     .facts = {}},
                    MembershipOptions{}, Rng(1), log_) {
    std::vector<wire::Row> rows;
    for (std::uint64_t number = 1; number <= kTwins; ++number) {
      rows.push_back({MemberState::alive, kKnown, std::make_shared<const wire::Identity>(identity(number)), {}});
    }
    membership_.preload(rows);
    Outputs out;
    membership_.step(kTwinsStart, Tick{}, out);
  }

  // What changed by this message.
  std::vector<Change> hear(const std::vector<Rumour>& rumours) {
    Received received;
    received.header.cluster = kCluster;
    received.header.sender = twin_id(kTeller);
    received.header.incarnation = kKnown;
    received.body = wire::Gossip{rumours};
    Outputs out;
    membership_.step(kTwinsStart, received, out);
    return out.changes;
  }

  Beliefs beliefs() const {
    Beliefs beliefs;
    for (std::uint64_t number = 1; number <= kSubjects; ++number) {
      const auto view = membership_.find(twin_id(number));
      RC_ASSERT(view.has_value());
      Belief& belief = beliefs[twin_id(number)];
      belief.incarnation = view->incarnation;
      belief.state = view->state;
      for (std::size_t key = 0; key < wire::kFactKeys; ++key) belief.facts[key] = view->facts[key] ? view->facts[key]->version : 0;
    }
    return beliefs;
  }

 private:
  Silent log_;
  Membership membership_;
};

Beliefs heard(const std::vector<std::vector<Rumour>>& messages) {
  Node node;
  for (const auto& rumours : messages) node.hear(rumours);
  return node.beliefs();
}

// Rule 1 as an order: the higher incarnation, then the graver state. A row is the greatest claim that was
// heard.
Beliefs twin(const std::vector<Rumour>& rumours) {
  Beliefs beliefs;
  for (std::uint64_t number = 1; number <= kSubjects; ++number) beliefs[twin_id(number)] = {};
  for (const Rumour& rumour : rumours) {
    Belief& belief = beliefs[rumour.subject];
    MemberState claimed = MemberState::alive;
    switch (rumour.kind) {
      case RumourKind::fact: {
        auto& version = belief.facts[static_cast<std::size_t>(rumour.fact->key)];
        version = std::max(version, rumour.fact->version);
        continue;
      }
      case RumourKind::gone: continue;
      case RumourKind::alive: break;
      case RumourKind::suspect: claimed = MemberState::suspect; break;
      case RumourKind::down: claimed = MemberState::down; break;
      case RumourKind::dead: claimed = MemberState::dead; break;
      case RumourKind::left: claimed = MemberState::left; break;
    }
    const std::pair claim{rumour.incarnation, claimed};
    if (claim > std::pair{belief.incarnation, belief.state}) std::tie(belief.incarnation, belief.state) = claim;
  }
  return beliefs;
}

Rumour drawn_rumour() {
  Rumour rumour;
  rumour.kind =
      *rc::gen::element(RumourKind::alive, RumourKind::suspect, RumourKind::down, RumourKind::dead, RumourKind::left, RumourKind::fact);
  const auto subject = *rc::gen::inRange<std::uint64_t>(1, kSubjects + 1);
  rumour.subject = twin_id(subject);
  rumour.incarnation = *rc::gen::inRange<std::uint64_t>(kKnown - 2, kKnown + 4);
  switch (rumour.kind) {
    case RumourKind::alive: rumour.identity = std::make_shared<const wire::Identity>(identity(subject)); break;
    case RumourKind::fact:
      rumour.fact = std::make_shared<const wire::Fact>(
          wire::Fact{*rc::gen::element(wire::FactKey::free, wire::FactKey::running), *rc::gen::inRange<std::uint64_t>(1, 6), "v"});
      break;
    default: rumour.from = twin_id(*rc::gen::inRange<std::uint64_t>(kSubjects + 1, kSubjects + 6));
  }
  return rumour;
}

std::vector<Rumour> some_rumours() {
  std::vector<Rumour> rumours;
  for (int count = *rc::gen::inRange(0, 25); count > 0; --count) rumours.push_back(drawn_rumour());
  return rumours;
}

std::vector<std::vector<Rumour>> one_by_one(const std::vector<Rumour>& rumours) {
  std::vector<std::vector<Rumour>> messages;
  for (const Rumour& rumour : rumours) messages.push_back({rumour});
  return messages;
}

RC_GTEST_PROP(Rule01Merge, IsWhatTheOrderOfClaimsSays, ()) {
  const auto rumours = some_rumours();
  RC_ASSERT(heard(one_by_one(rumours)) == twin(rumours));
}

RC_GTEST_PROP(Rule01Merge, DoesNotDependOnOrderGroupingAndRepetition, ()) {
  auto rumours = some_rumours();
  const auto once = heard(one_by_one(rumours));
  for (std::size_t at = rumours.size(); at > 1; --at) std::swap(rumours[at - 1], rumours[*rc::gen::inRange<std::size_t>(0, at)]);
  std::vector<std::vector<Rumour>> messages;
  for (const Rumour& rumour : rumours) {
    if (messages.empty() || *rc::gen::arbitrary<bool>()) messages.emplace_back();
    messages.back().push_back(rumour);
    if (*rc::gen::inRange(0, 4) == 0) messages.push_back({rumours[*rc::gen::inRange<std::size_t>(0, rumours.size())]});
  }
  RC_ASSERT(heard(messages) == once);
}

RC_GTEST_PROP(Rule01Merge, WhatWasHeardIsNoNewsASecondTime, ()) {
  const auto rumours = some_rumours();
  Node node;
  node.hear(rumours);
  RC_ASSERT(node.hear(rumours).empty());
}

// down says: agent gone, host up. Accusations of silence were under way when it was decided (a probe fails as
// the process dies) and arrive before it here, after it there: they must not make it dead anywhere. That its
// host fell silent afterwards is another finding, and must be told in a way that no ordinary suspicion can be
// taken for.
TEST(Rule01Merge, LateSuspicionsDoNotMakeDeadOfDown) {
  Rumour down{.kind = RumourKind::down,
              .subject = twin_id(1),
              .incarnation = kKnown,
              .from = twin_id(10),
              .identity = {},
              .fact = {},
              .reason = {}};
  std::vector<std::vector<Rumour>> messages{{down}};
  for (std::uint64_t accuser = 11; accuser <= 14; ++accuser) {
    Rumour suspect = down;
    suspect.kind = RumourKind::suspect;
    suspect.from = twin_id(accuser);
    messages.push_back({suspect});
  }
  const Belief agent_down{kKnown, MemberState::down, {}};
  EXPECT_EQ(heard({messages.rbegin(), messages.rend()}).at(twin_id(1)), agent_down);
  EXPECT_EQ(heard(messages).at(twin_id(1)), agent_down);
}

// Two that saw the process gone, or one that knew it from two: as good as the decision.
RC_GTEST_PROP(Rule01Merge, TwoWitnessesAreTheDecisionInAnyOrder, ()) {
  Rumour first{.kind = RumourKind::gone,
               .subject = twin_id(1),
               .incarnation = kKnown,
               .from = twin_id(10),
               .identity = {},
               .fact = {},
               .reason = {}};
  Rumour second = first, suspect = first;
  second.from = twin_id(11);
  suspect.kind = RumourKind::suspect;
  suspect.from = twin_id(12);
  std::vector<Rumour> rumours{first, first, suspect, second};
  if (*rc::gen::arbitrary<bool>()) std::erase_if(rumours, [](const Rumour& rumour) { return rumour.kind == RumourKind::suspect; });
  for (std::size_t at = rumours.size(); at > 1; --at) std::swap(rumours[at - 1], rumours[*rc::gen::inRange<std::size_t>(0, at)]);
  RC_ASSERT(heard(one_by_one(rumours)).at(twin_id(1)) == (Belief{kKnown, MemberState::down, {}}));
  // A higher incarnation wipes what was said before, also half of it.
  Rumour alive{.kind = RumourKind::alive,
               .subject = twin_id(1),
               .incarnation = kKnown + 1,
               .from = {},
               .identity = std::make_shared<const wire::Identity>(identity(1)),
               .fact = {},
               .reason = {}};
  rumours.insert(rumours.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(rumours.size()) + 1), alive);
  RC_ASSERT(heard(one_by_one(rumours)).at(twin_id(1)) == (Belief{kKnown + 1, MemberState::alive, {}}));
}

}  // namespace
}  // namespace dtrain::gossip
