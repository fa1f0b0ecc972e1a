#include "common/gossip/sync_tree.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace dtrain::gossip {
namespace {

using wire::MemberState;
using wire::RowSummary;
constexpr std::uint32_t kTreeBuckets = 16;
MemberId plain_id(std::uint64_t number) { return {0, number}; }

TEST(SyncTree, EmptyTablesAreEqual) {
  SyncTree one(kTreeBuckets), other(kTreeBuckets);
  EXPECT_EQ(one.root(), 0u);
  EXPECT_TRUE(one.differing(other.buckets()).empty());
}

TEST(SyncTree, SuspicionAloneMakesNoDifference) {
  const RowSummary alive{plain_id(1), 5, MemberState::alive, 77}, suspect{plain_id(1), 5, MemberState::suspect, 77};
  SyncTree one(kTreeBuckets), other(kTreeBuckets);
  one.add(alive);
  other.add(suspect);
  EXPECT_EQ(one.root(), other.root());
  EXPECT_TRUE(same_for_sync(alive, suspect));
}

TEST(SyncTree, DecisionsIncarnationsAndFactsMakeADifference) {
  const RowSummary row{plain_id(1), 5, MemberState::alive, 77};
  std::set<std::uint64_t> roots;
  for (RowSummary other : {row, RowSummary{plain_id(2), 5, MemberState::alive, 77}, RowSummary{plain_id(1), 6, MemberState::alive, 77},
                           RowSummary{plain_id(1), 5, MemberState::down, 77}, RowSummary{plain_id(1), 5, MemberState::dead, 77},
                           RowSummary{plain_id(1), 5, MemberState::left, 77}, RowSummary{plain_id(1), 5, MemberState::alive, 78}}) {
    SyncTree tree(kTreeBuckets);
    tree.add(other);
    EXPECT_TRUE(roots.insert(tree.root()).second);
    EXPECT_EQ(same_for_sync(row, other), roots.size() == 1);
  }
}

TEST(SyncTree, FactsOfThoseGoneMakeNone) {
  const RowSummary one{plain_id(1), 5, MemberState::dead, 1}, other{plain_id(1), 5, MemberState::dead, 2};
  EXPECT_TRUE(same_for_sync(one, other));
  SyncTree tree(kTreeBuckets);
  tree.add(one);
  tree.remove(other);
  EXPECT_EQ(tree.root(), 0u);
}

TEST(SyncTree, FactsHashIsOfKeysAndVersions) {
  EXPECT_EQ(facts_hash({}), 0u);
  EXPECT_NE(facts_hash({1, 0, 0, 0}), facts_hash({0, 1, 0, 0}));
  EXPECT_NE(facts_hash({1, 2, 0, 0}), facts_hash({2, 1, 0, 0}));
  EXPECT_NE(facts_hash({1, 0, 0, 0}), facts_hash({2, 0, 0, 0}));
}

TEST(SyncTree, BucketsAreEvenlyFilled) {
  SyncTree tree(256);
  std::vector<int> filled(256);
  for (std::uint64_t number = 0; number < 25'600; ++number) ++filled[tree.bucket_of(plain_id(number))];
  EXPECT_GT(*std::ranges::min_element(filled), 50);
  EXPECT_LT(*std::ranges::max_element(filled), 160);
}

TEST(SyncTree, AnotherNumberOfBucketsCannotBeCompared) {
  SyncTree one(2), other(3);
  EXPECT_EQ(one.differing(other.buckets()), (std::vector<std::uint16_t>{0, 1}));
  EXPECT_EQ(one.differing({}), (std::vector<std::uint16_t>{0, 1}));
  EXPECT_EQ(SyncTree(0).buckets().size(), 1u);
}

// Twin: two tables as maps. The buckets that differ are exactly those of the rows that differ.
RC_GTEST_PROP(SyncTree, FindsExactlyTheBucketsOfDifferingRows, (const std::vector<std::pair<bool, std::uint32_t>>& changes)) {
  struct Table {
    SyncTree tree{kTreeBuckets};
    std::map<MemberId, RowSummary> rows;
  } tables[2];
  for (const auto& [which, draw] : changes) {
    Table& table = tables[which ? 1 : 0];
    const RowSummary row{plain_id(draw % 30), draw / 30 % 2, static_cast<MemberState>(draw / 60 % 5), draw / 300 % 2};
    const auto was = table.rows.find(row.id);
    if (draw / 600 % 4 == 0) {
      if (was == table.rows.end()) continue;
      table.tree.remove(was->second);
      table.rows.erase(was);
    } else if (was == table.rows.end()) {
      table.tree.add(row);
      table.rows[row.id] = row;
    } else {
      table.tree.remove(was->second);
      table.tree.add(row);
      was->second = row;
    }
  }
  std::set<std::uint16_t> differing;
  for (std::uint64_t number = 0; number < 30; ++number) {
    const auto a = tables[0].rows.find(plain_id(number)), b = tables[1].rows.find(plain_id(number));
    const bool here = a != tables[0].rows.end(), there = b != tables[1].rows.end();
    if (here != there || (here && !same_for_sync(a->second, b->second))) differing.insert(tables[0].tree.bucket_of(plain_id(number)));
  }
  const auto found = tables[0].tree.differing(tables[1].tree.buckets());
  RC_ASSERT(std::vector<std::uint16_t>(differing.begin(), differing.end()) == found);
  RC_ASSERT(found.empty() == (tables[0].tree.root() == tables[1].tree.root()));
}

}  // namespace
}  // namespace dtrain::gossip
