#include "common/gossip/neighbours.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/gossip/mix.h"

namespace dtrain::gossip {
namespace {

using Members = std::set<MemberId>;
constexpr std::uint32_t kRings = 4;
MemberId mixed_id(std::uint64_t number) { return {mix64(number), number}; }
Rings::Candidates all_of(const Members& members) {
  return [&members](const Rings::Visit& visit) { std::ranges::for_each(members, visit); };
}

// Twin: each ring sorted, the one after and the one before oneself.
std::vector<MemberId> naive(const MemberId& self, Members members) {
  members.insert(self);
  std::vector<MemberId> found;
  for (std::uint32_t ring = 0; ring < kRings && members.size() > 1; ++ring) {
    std::map<std::uint64_t, MemberId> sorted;
    for (const MemberId& id : members) sorted[mix64(id, ring)] = id;
    auto at = sorted.find(mix64(self, ring));
    auto after = std::next(at) == sorted.end() ? sorted.begin() : std::next(at);
    auto before = std::prev(at == sorted.begin() ? sorted.end() : at);
    for (const MemberId& id : {after->second, before->second}) {
      if (std::ranges::find(found, id) == found.end()) found.push_back(id);
    }
  }
  return found;
}

TEST(Neighbours, AloneThereAreNone) {
  Rings rings(mixed_id(0), kRings);
  EXPECT_TRUE(rings.neighbours().empty());
  EXPECT_FALSE(rings.add(mixed_id(0)));
  EXPECT_FALSE(rings.add(MemberId{}));
  EXPECT_FALSE(rings.remove(mixed_id(1), [](const Rings::Visit&) { FAIL() << "no scan for a stranger"; }));
  EXPECT_TRUE(rings.add(mixed_id(1)));
  EXPECT_FALSE(rings.add(mixed_id(1)));
  EXPECT_EQ(rings.neighbours(), std::vector{mixed_id(1)});
}

TEST(Neighbours, StayFewAndStableAsTheClusterGrows) {
  Rings rings(mixed_id(0), kRings);
  std::size_t changes = 0;
  for (std::uint64_t number = 1; number <= 10'000; ++number) changes += rings.add(mixed_id(number)) ? 1 : 0;
  EXPECT_LE(rings.neighbours().size(), 2 * kRings);
  EXPECT_GE(rings.neighbours().size(), 6u);
  EXPECT_LT(changes, 150u) << "about 8 ln n";
}

TEST(Neighbours, AreMutualAndReachEverybodyInAFewSteps) {
  Members members;
  for (std::uint64_t number = 0; number < 1000; ++number) members.insert(mixed_id(number));
  std::map<MemberId, std::vector<MemberId>> graph;
  for (const MemberId& id : members) {
    Rings rings(id, kRings);
    rings.rebuild(all_of(members));
    graph[id] = rings.neighbours();
  }
  for (const auto& [id, neighbours] : graph) {
    for (const MemberId& other : neighbours) EXPECT_TRUE(std::ranges::find(graph[other], id) != graph[other].end());
  }
  Members reached{mixed_id(0)}, edge = reached;
  int steps = 0;
  for (; reached.size() < members.size() && steps < 20; ++steps) {
    Members next;
    for (const MemberId& id : edge) {
      for (const MemberId& other : graph[id]) {
        if (reached.insert(other).second) next.insert(other);
      }
    }
    edge = next;
  }
  EXPECT_EQ(reached.size(), members.size());
  EXPECT_LE(steps, 7);
}

RC_GTEST_PROP(Neighbours, AgreeWithSortedRings, (const std::vector<std::pair<bool, std::uint8_t>>& changes)) {
  const MemberId self = mixed_id(3);
  Rings rings(self, kRings);
  Members members;
  for (const auto& [come, number] : changes) {
    const MemberId id = mixed_id(number % 40);
    const auto before = rings.neighbours();
    bool changed = false;
    if (come) {
      members.insert(id);
      changed = rings.add(id);
    } else {
      members.erase(id);
      changed = rings.remove(id, all_of(members));
    }
    RC_ASSERT(rings.neighbours() == naive(self, members));
    RC_ASSERT(changed == (rings.neighbours() != before));
    RC_ASSERT(rings.is_neighbour(id) == std::ranges::any_of(rings.neighbours(), [&](const MemberId& other) { return other == id; }));
  }
  Rings rebuilt(self, kRings);
  rebuilt.rebuild(all_of(members));
  RC_ASSERT(rebuilt.neighbours() == rings.neighbours());
}

}  // namespace
}  // namespace dtrain::gossip
