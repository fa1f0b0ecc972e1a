#include "common/gossip/probe_order.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>

namespace dtrain::gossip {
namespace {

using Slot = ProbeOrder::Slot;
const ProbeOrder::Eligible kAll = [](Slot) { return true; };

std::vector<Slot> take(ProbeOrder& order, Slot slots, std::size_t count, const ProbeOrder::Eligible& eligible = kAll) {
  std::vector<Slot> found;
  while (found.size() < count) {
    const auto slot = order.next(slots, eligible);
    if (!slot) break;
    found.push_back(*slot);
  }
  return found;
}

TEST(Rule08ProbeOrder, AnotherShuffleEachPass) {
  ProbeOrder order(1);
  const auto first = take(order, 50, 50), second = take(order, 50, 50);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 50u);
  EXPECT_EQ(std::set(second.begin(), second.end()).size(), 50u);
}

TEST(Rule08ProbeOrder, NodesDoNotMarchTogether) {
  ProbeOrder one(1), other(2);
  EXPECT_NE(take(one, 50, 50), take(other, 50, 50));
}

TEST(Rule08ProbeOrder, SwitchedOffItGoesInOrder) {
  ProbeOrder order(1, false);
  EXPECT_EQ(take(order, 4, 8), (std::vector<Slot>{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(Rule08ProbeOrder, EveryPositionIsAboutEquallyLikely) {
  for (const Slot slots : {2u, 3u, 20u}) {
    std::map<std::pair<Slot, std::size_t>, int> seen;
    const int passes = 400 * static_cast<int>(slots);
    ProbeOrder order(9);
    for (int pass = 0; pass < passes; ++pass) {
      const auto found = take(order, slots, slots);
      for (std::size_t at = 0; at < found.size(); ++at) ++seen[{found[at], at}];
    }
    ASSERT_EQ(seen.size(), std::size_t{slots} * slots);
    for (const auto& [place, count] : seen) EXPECT_NEAR(count, 400, 100) << slots << ": " << place.first << " at " << place.second;
  }
}

TEST(Rule08ProbeOrder, NewcomersAppearAtRandomPositions) {
  // Slot 40 comes when ten of forty were probed: it is probed anywhere among the rest of this pass, or in the
  // next one.
  std::set<std::size_t> positions;
  std::size_t this_pass = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    ProbeOrder order(seed);
    take(order, 40, 10);
    const auto rest = take(order, 41, 71);
    const auto at = static_cast<std::size_t>(std::ranges::find(rest, 40u) - rest.begin());
    ASSERT_LT(at, rest.size());
    positions.insert(at);
    this_pass += at <= 30 ? 1 : 0;
  }
  EXPECT_GT(positions.size(), 25u);
  EXPECT_NEAR(this_pass, 150, 35);
}

TEST(Rule08ProbeOrder, NobodyEligibleIsSaid) {
  ProbeOrder order(1);
  EXPECT_FALSE(order.next(0, kAll));
  int asked = 0;
  EXPECT_FALSE(order.next(10, [&](Slot) { return ++asked, false; }));
  EXPECT_LE(asked, 20) << "one pass at most beyond the rest of this one";
  EXPECT_EQ(take(order, 10, 3, [](Slot slot) { return slot == 7; }), (std::vector<Slot>{7, 7, 7}));
}

TEST(Rule08ProbeOrder, PeekSaysWhatComesWithoutTakingIt) {
  ProbeOrder order(5);
  take(order, 30, 28);
  const auto ahead = order.peek(30, 5, kAll);  // over the end of the pass
  const auto again = order.peek(30, 5, kAll);
  EXPECT_EQ(ahead, again);
  auto came = take(order, 30, 5);
  std::vector<Slot> distinct;
  for (const Slot slot : came) {
    if (std::ranges::find(distinct, slot) == distinct.end()) distinct.push_back(slot);
  }
  EXPECT_EQ(ahead, distinct);
  EXPECT_EQ(order.peek(1, 3, kAll), (std::vector<Slot>{0}));
}

RC_GTEST_PROP(Rule08ProbeOrder, WhoStaysIsProbedOnceInEveryPass, (std::uint64_t seed)) {
  const auto slots = *rc::gen::inRange<Slot>(1, 300);
  ProbeOrder order(seed);
  std::set<Slot> gone;
  std::map<Slot, int> probed;
  for (Slot taken = 0; taken < 5 * slots; ++taken) {
    // Members leave at any time; who is there throughout is met once in each pass, so at no time twice more
    // than another.
    if (*rc::gen::weightedElement<bool>({{9, false}, {1, true}}) && gone.size() + 1 < slots) gone.insert(*rc::gen::inRange<Slot>(0, slots));
    const auto slot = order.next(slots, [&](Slot s) { return !gone.contains(s); });
    RC_ASSERT(slot.has_value());
    RC_ASSERT(*slot < slots && !gone.contains(*slot));
    ++probed[*slot];
    int least = INT_MAX, most = 0;
    for (Slot other = 0; other < slots; ++other) {
      if (gone.contains(other)) continue;
      least = std::min(least, probed[other]);
      most = std::max(most, probed[other]);
    }
    RC_ASSERT(most - least <= 1);
  }
}

}  // namespace
}  // namespace dtrain::gossip
