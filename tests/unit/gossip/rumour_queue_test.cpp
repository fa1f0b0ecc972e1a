#include "common/gossip/rumour_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace dtrain::gossip {
namespace {

using wire::Rumour;
using wire::RumourKind;

constexpr RumourQueue::SizeOf kSize = +[](const Rumour& rumour) { return 10 + rumour.reason.size(); };
MemberId member(std::uint64_t number) { return {0, number}; }
// The incarnation tells rumours of one subject apart in these tests.
Rumour rumour(RumourKind kind, std::uint64_t subject, std::uint64_t incarnation, std::size_t padding = 0, std::uint64_t from = 0) {
  Rumour made{.kind = kind,
              .subject = member(subject),
              .incarnation = incarnation,
              .from = member(from),
              .identity = {},
              .fact = {},
              .reason = std::string(padding, 'x')};
  return made;
}
Rumour fact(std::uint64_t subject, wire::FactKey key, std::uint64_t version) {
  Rumour made = rumour(RumourKind::fact, subject, version);
  made.fact = std::make_shared<const wire::Fact>(wire::Fact{key, version, ""});
  return made;
}
using Told = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // subject, incarnation
Told told(const std::vector<Rumour>& rumours) {
  Told found;
  for (const Rumour& one : rumours) found.emplace_back(one.subject.low, one.incarnation);
  return found;
}
Told take(RumourQueue& queue, std::size_t budget = 1 << 20, std::size_t limit = 1000) {
  std::vector<Rumour> out;
  queue.take(budget, limit, out);
  return told(out);
}
Told take_round(RumourQueue& queue, std::uint32_t neighbours, std::size_t budget = 1 << 20, std::size_t limit = 1000) {
  std::vector<Rumour> out;
  queue.take_round(budget, limit, out, neighbours);
  return told(out);
}

TEST(Rule11RumourQueue, FewestTransmittedFirst) {
  RumourQueue queue({.retransmit = 4}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 1, 50));
  EXPECT_EQ(take(queue), (Told{{1, 1}}));
  queue.add(rumour(RumourKind::alive, 2, 1));
  EXPECT_EQ(take(queue, 1000, 1), (Told{{2, 1}})) << "smaller, but never told";
  EXPECT_EQ(take(queue, 1000, 1), (Told{{1, 1}})) << "both once: the larger";
}

TEST(Rule11RumourQueue, SwitchedOffTheLargestGoesAgainAndAgain) {
  RumourQueue queue({.retransmit = 4, .fewest_transmitted_first = false}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 1, 50));
  queue.add(rumour(RumourKind::alive, 2, 1));
  for (int time = 0; time < 4; ++time) EXPECT_EQ(take(queue, 1000, 1), (Told{{1, 1}}));
}

TEST(Rule11RumourQueue, ThenTheLargestThatFitsThenTheNewest) {
  RumourQueue queue({}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 1, 90));
  queue.add(rumour(RumourKind::alive, 2, 1, 40));
  queue.add(rumour(RumourKind::alive, 3, 1, 20));
  queue.add(rumour(RumourKind::alive, 4, 1, 20));
  EXPECT_EQ(take(queue, 99), (Told{{2, 1}, {4, 1}})) << "100 bytes do not fit; then of the two of 30 the newest";
  EXPECT_EQ(take(queue, 29), (Told{}));
}

TEST(Rule11RumourQueue, WhoIsThereComesBeforeWhatTheyHave) {
  RumourQueue queue({.retransmit = 4}, kSize);
  queue.add(fact(1, wire::FactKey{1}, 7));
  queue.add(rumour(RumourKind::down, 2, 1));
  EXPECT_EQ(take(queue, 1000, 1), (Told{{2, 1}})) << "the fact is as long and older";
  EXPECT_EQ(take(queue, 1000, 1), (Told{{1, 7}})) << "but a state does not go twice before it";
}

TEST(Rule11RumourQueue, NothingTwiceInOneMessage) {
  RumourQueue queue({}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 1));
  queue.add(rumour(RumourKind::alive, 2, 1));
  EXPECT_EQ(take(queue).size(), 2u);
}

TEST(Rule11RumourQueue, TransmittedOftenEnoughItGoes) {
  for (const auto& [members, times] : {std::pair{1u, 4}, {9u, 4}, {10u, 8}, {99u, 8}, {1000u, 16}, {10'000u, 20}}) {
    RumourQueue queue({.retransmit = 4}, kSize);
    queue.set_members(members);
    queue.add(rumour(RumourKind::alive, 1, 1));
    int told = 0;
    while (!queue.empty()) told += static_cast<int>(take(queue).size());
    EXPECT_EQ(told, times) << members;
  }
}

TEST(Rule11RumourQueue, OneRoundToSeveralCountsAsSeveral) {
  RumourQueue queue({.retransmit = 4}, kSize);
  queue.set_members(99);
  queue.add(rumour(RumourKind::alive, 1, 1));
  take_round(queue, 0x0f);
  EXPECT_EQ(queue.size(), 1u);
  take_round(queue, 0xf0);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(Rule11RumourQueue, GoesOnlyWhenEveryNeighbourWasInARoundWithIt) {
  RumourQueue queue({.retransmit = 4}, kSize);
  queue.set_members(99);
  queue.set_neighbours(8);
  queue.add(rumour(RumourKind::dead, 1, 1));
  for (int ping = 0; ping < 100; ++ping) take(queue);
  EXPECT_EQ(queue.size(), 1u) << "those who were pinged may all be dead";
  for (int round = 0; round < 100; ++round) take_round(queue, 0x0f);
  EXPECT_EQ(queue.size(), 1u) << "the other half has not had it";
  take_round(queue, 0xf0);
  EXPECT_TRUE(queue.empty());
}

TEST(Rule11RumourQueue, OtherNeighboursAreToldAnew) {
  RumourQueue queue({.retransmit = 1}, kSize);
  queue.set_neighbours(2);
  queue.add(rumour(RumourKind::dead, 1, 1));
  take_round(queue, 0b01);
  queue.set_neighbours(3);
  take_round(queue, 0b110);
  EXPECT_EQ(queue.size(), 1u) << "the first of them is another one now";
  take_round(queue, 0b001);
  EXPECT_TRUE(queue.empty());
}

TEST(Rule11RumourQueue, ARoundGoesFirstToThoseWhomTheFirstRumourHasNotReached) {
  RumourQueue queue({.retransmit = 4}, kSize);
  queue.set_members(99);
  EXPECT_EQ(queue.next_round(4, 0), 0u);
  queue.set_neighbours(8);
  EXPECT_EQ(queue.next_round(4, 6), 0b1100'0011u) << "in turn";
  queue.add(rumour(RumourKind::dead, 1, 1));
  take_round(queue, 0b1100'0011);
  EXPECT_EQ(queue.next_round(4, 6), 0b0011'1100u);
  take_round(queue, 0b0001'1100);
  EXPECT_EQ(queue.next_round(4, 6), 0b1110'0001u) << "the one that is left, the others in turn";
  EXPECT_EQ(queue.next_round(9, 6), 0xffu);
}

// A queue of several rounds in which every rumour comes up every second round: turns of four alone would always meet
// the same half with the same rumours.
TEST(Rule11RumourQueue, HoweverManyWaitEachReachesAll) {
  for (std::uint64_t rumours = 1; rumours <= 20; ++rumours) {
    RumourQueue queue({.retransmit = 4}, kSize);
    queue.set_members(99);
    queue.set_neighbours(8);
    for (std::uint64_t subject = 1; subject <= rumours; ++subject) queue.add(rumour(RumourKind::dead, subject, 1));
    std::map<std::uint64_t, std::uint32_t> reached;
    std::uint32_t turn = 0, rounds = 0;
    for (; !queue.empty(); turn += 4, ++rounds) {
      take(queue, 100, 3);  // pings in between
      const std::uint32_t round = queue.next_round(4, turn);
      for (const auto& [subject, incarnation] : take_round(queue, round, 1000, 5)) reached[subject] |= round;
      ASSERT_LE(rounds, 4 * rumours) << rumours;
    }
    ASSERT_EQ(reached.size(), rumours);
    for (const auto& [subject, neighbours] : reached) EXPECT_EQ(neighbours, 0xffu) << subject << " of " << rumours;
  }
}

TEST(Rule11RumourQueue, NewOneReplacesTheQueuedAndBeginsAnew) {
  RumourQueue queue({}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 1));
  take(queue);
  queue.add(rumour(RumourKind::dead, 1, 1));
  EXPECT_EQ(queue.size(), 1u);
  queue.add(rumour(RumourKind::alive, 2, 1, 50));
  take(queue);
  queue.add(rumour(RumourKind::alive, 1, 2));
  EXPECT_EQ(take(queue, 1000, 1), (Told{{1, 2}}));
}

TEST(Rule11RumourQueue, FactsHaveASlotPerKey) {
  RumourQueue queue({}, kSize);
  queue.add(fact(1, wire::FactKey::free, 1));
  queue.add(fact(1, wire::FactKey::running, 2));
  queue.add(fact(1, wire::FactKey::free, 3));
  queue.add(rumour(RumourKind::alive, 1, 9));
  auto found = take(queue);
  std::ranges::sort(found);
  EXPECT_EQ(found, (Told{{1, 2}, {1, 3}, {1, 9}}));
}

TEST(Rule11RumourQueue, AccusersHaveASlotEachUpToTheBoundOldestIncarnationGivesWay) {
  RumourQueue queue({.accusers = 3}, kSize);
  for (std::uint64_t accuser = 1; accuser <= 3; ++accuser) queue.add(rumour(RumourKind::suspect, 1, 10 - accuser, 0, accuser));
  queue.add(rumour(RumourKind::gone, 1, 5, 0, 1));
  queue.add(rumour(RumourKind::suspect, 2, 5, 0, 1));
  queue.add(rumour(RumourKind::suspect, 1, 20, 0, 2));
  EXPECT_EQ(queue.size(), 5u);
  queue.add(rumour(RumourKind::suspect, 1, 20, 0, 4));
  auto found = take(queue);
  std::ranges::sort(found);
  EXPECT_EQ(found, (Told{{1, 5}, {1, 9}, {1, 20}, {1, 20}, {2, 5}})) << "the accusation of 7 gave way";
}

TEST(Rule11RumourQueue, AmongAccusersOfOneIncarnationTheMostToldGivesWay) {
  RumourQueue queue({.accusers = 2}, kSize);
  queue.add(rumour(RumourKind::suspect, 1, 5, 30, 1));
  queue.add(rumour(RumourKind::suspect, 1, 5, 20, 2));
  take(queue, 1000, 1);  // the longer one, by accuser 1
  queue.add(rumour(RumourKind::suspect, 1, 5, 10, 3));
  std::vector<Rumour> left;
  queue.take(1000, 10, left);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].from, member(2));
  EXPECT_EQ(left[1].from, member(3));
}

TEST(Rule11RumourQueue, StateEndsTheAccusationsThatItBeats) {
  RumourQueue queue({}, kSize);
  queue.add(rumour(RumourKind::suspect, 1, 4, 0, 1));
  queue.add(rumour(RumourKind::gone, 1, 5, 0, 2));
  queue.add(rumour(RumourKind::suspect, 1, 6, 0, 3));
  queue.add(rumour(RumourKind::suspect, 2, 1, 0, 3));
  queue.add(fact(1, wire::FactKey::free, 1));
  queue.add(rumour(RumourKind::alive, 1, 5));
  EXPECT_EQ(queue.size(), 5u) << "alive(5) beats suspect(4) only";
  queue.add(rumour(RumourKind::down, 1, 5));
  EXPECT_EQ(queue.size(), 4u) << "down(5) beats gone(5) too";
  queue.forget(member(1));
  EXPECT_EQ(take(queue), (Told{{2, 1}}));
}

TEST(Rule11RumourQueue, AnAccusationDoesNotEndTheIntroduction) {
  RumourQueue queue({}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 4));
  queue.add(rumour(RumourKind::suspect, 1, 4, 0, 1));
  EXPECT_EQ(queue.size(), 2u);
}

TEST(Rule11RumourQueue, BoundedItDropsTheMostTransmittedAndCounts) {
  RumourQueue queue({.rumours = 3}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 1));
  take(queue);
  for (std::uint64_t subject = 2; subject <= 3; ++subject) queue.add(rumour(RumourKind::alive, subject, 1));
  EXPECT_EQ(queue.dropped(), 0u);
  queue.add(rumour(RumourKind::alive, 4, 1));
  EXPECT_EQ(queue.dropped(), 1u);
  EXPECT_EQ(take(queue), (Told{{4, 1}, {3, 1}, {2, 1}}));
}

TEST(Rule11RumourQueue, LargerThanEveryBudgetGoesAloneWhenAsked) {
  RumourQueue queue({}, kSize);
  queue.add(rumour(RumourKind::alive, 1, 1, 500));
  queue.add(rumour(RumourKind::alive, 2, 1));
  EXPECT_EQ(take(queue, 100), (Told{{2, 1}}));
  std::vector<Rumour> out;
  EXPECT_EQ(queue.take_round(100, 10, out, 1), 510u);
  EXPECT_EQ(told(out), (Told{{1, 1}}));
  out.clear();
  EXPECT_EQ(queue.take(100, 10, out), 10u);
  EXPECT_EQ(told(out), (Told{{2, 1}}));
}

// Twin: a plain list, searched in full each time.
struct NaiveQueue {
  struct Item {
    Rumour rumour;
    std::uint32_t transmitted = 0;
    std::uint64_t number = 0;
    std::uint32_t reached = 0;
  };
  std::vector<Item> items;
  std::uint32_t limit;
  std::uint32_t neighbours = 0;
  std::uint64_t numbers = 0;

  static bool accusation(const Rumour& one) { return one.kind == RumourKind::suspect || one.kind == RumourKind::gone; }
  static bool same_slot(const Rumour& a, const Rumour& b) {
    if (a.subject != b.subject) return false;
    if (a.kind == RumourKind::fact || b.kind == RumourKind::fact) return a.kind == b.kind && a.fact->key == b.fact->key;
    if (accusation(a) || accusation(b)) return a.kind == b.kind && a.from == b.from;
    return true;
  }
  static auto order(const Item& item) {
    return std::tuple(item.transmitted, item.rumour.kind == RumourKind::fact, ~kSize(item.rumour), ~item.number);
  }

  void add(const Rumour& added) {
    std::erase_if(items, [&](const Item& item) {
      const Rumour& old = item.rumour;
      if (same_slot(old, added)) return true;
      if (old.subject != added.subject || !accusation(old) || accusation(added) || added.kind == RumourKind::fact) return false;
      return added.kind == RumourKind::alive ? old.incarnation < added.incarnation : old.incarnation <= added.incarnation;
    });
    items.push_back({added, 0, ++numbers});
  }
  void set_neighbours(std::uint32_t count) {
    neighbours = (1u << count) - 1;
    for (Item& item : items) item.reached = 0;
  }
  Told take(std::size_t budget, std::size_t count, std::uint32_t round = 0) {
    Told found;
    std::vector<bool> used(items.size());
    if (round != 0) {  // the first, if it is larger than the budget, by itself
      const auto first = std::ranges::min_element(items, {}, order);
      if (first != items.end() && kSize(first->rumour) > budget) {
        budget = kSize(first->rumour);
        count = std::min<std::size_t>(count, 1);
      }
    }
    while (found.size() < count) {
      std::size_t best = items.size();
      for (std::size_t at = 0; at < items.size(); ++at) {
        if (used[at] || kSize(items[at].rumour) > budget) continue;
        if (best == items.size() || order(items[at]) < order(items[best])) best = at;
      }
      if (best == items.size()) break;
      used[best] = true;
      budget -= kSize(items[best].rumour);
      found.emplace_back(items[best].rumour.subject.low, items[best].rumour.incarnation);
    }
    for (std::size_t at = 0; at < used.size(); ++at) {
      if (!used[at]) continue;
      items[at].transmitted += round == 0 ? 1 : static_cast<std::uint32_t>(std::popcount(round));
      items[at].reached |= round;
    }
    // Only what was sent ends, be there fewer neighbours now or not.
    std::size_t at = 0;
    std::erase_if(items,
                  [&](const Item& item) { return used[at++] && item.transmitted >= limit && (item.reached & neighbours) == neighbours; });
    return found;
  }
};

RC_GTEST_PROP(Rule11RumourQueue, AgreesWithAPlainList, ()) {
  RumourQueue queue({.retransmit = 2, .accusers = 100}, kSize);
  NaiveQueue twin{.items = {}, .limit = queue.transmissions()};
  const int steps = *rc::gen::inRange(0, 200);
  for (int step = 0; step < steps; ++step) {
    if (*rc::gen::inRange(0, 3) > 0) {
      const auto kind = *rc::gen::arbitrary<std::uint8_t>() % 7;
      const auto subject = *rc::gen::inRange<std::uint64_t>(1, 6), incarnation = *rc::gen::inRange<std::uint64_t>(0, 5);
      Rumour added = static_cast<RumourKind>(kind) == RumourKind::fact
                         ? fact(subject, static_cast<wire::FactKey>(*rc::gen::inRange(0, 4)), incarnation)
                         : rumour(static_cast<RumourKind>(kind), subject, incarnation, *rc::gen::inRange<std::size_t>(0, 40),
                                  *rc::gen::inRange<std::uint64_t>(1, 6));
      queue.add(added);
      twin.add(added);
    } else if (*rc::gen::inRange(0, 20) == 0) {
      const auto neighbours = *rc::gen::inRange<std::uint32_t>(0, 5);
      queue.set_neighbours(neighbours);
      twin.set_neighbours(neighbours);
    } else {
      const auto budget = *rc::gen::inRange<std::size_t>(0, 200), count = *rc::gen::inRange<std::size_t>(0, 6);
      const auto round = *rc::gen::inRange<std::uint32_t>(0, twin.neighbours + 1);
      const Told expected = twin.take(budget, count, round);
      RC_ASSERT((round == 0 ? take(queue, budget, count) : take_round(queue, round, budget, count)) == expected);
    }
    RC_ASSERT(queue.size() == twin.items.size());
    std::size_t bytes = 0;
    for (const auto& item : twin.items) bytes += kSize(item.rumour);
    RC_ASSERT(queue.bytes() == bytes);
  }
}

RC_GTEST_PROP(Rule11RumourQueue, NeverMoreThanItsBounds, ()) {
  RumourQueue queue({.rumours = 6, .accusers = 2}, kSize);
  const int steps = *rc::gen::inRange(0, 100);
  for (int step = 0; step < steps; ++step) {
    const bool full = queue.size() == 6;
    const std::uint64_t dropped = queue.dropped();
    queue.add(rumour(*rc::gen::element(RumourKind::suspect, RumourKind::gone), *rc::gen::inRange<std::uint64_t>(1, 6),
                     static_cast<std::uint64_t>(step), 0, *rc::gen::inRange<std::uint64_t>(1, 6)));
    RC_ASSERT(queue.size() <= 6u);
    RC_ASSERT(queue.dropped() == dropped || (full && queue.dropped() == dropped + 1 && queue.size() == 6));
  }
  std::vector<Rumour> all;
  queue.take(1 << 20, 1000, all);
  std::map<std::pair<std::uint64_t, RumourKind>, int> accusers;
  for (const Rumour& one : all) RC_ASSERT(++accusers[std::pair(one.subject.low, one.kind)] <= 2);
}

}  // namespace
}  // namespace dtrain::gossip
