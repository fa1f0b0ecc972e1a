#include "common/gossip/slot_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

namespace dtrain::gossip {
namespace {

std::set<SlotIndex::Slot> found(const SlotIndex& index, std::uint32_t tag) {
  std::set<SlotIndex::Slot> slots;
  index.each(tag, [&](SlotIndex::Slot slot) { return slots.insert(slot), false; });
  return slots;
}

TEST(SlotIndex, EmptyFindsAndRemovesNothing) {
  SlotIndex index;
  EXPECT_TRUE(found(index, 0).empty());
  index.remove(3, 4);
  index.add(3, 4);
  index.remove(3, 5);
  EXPECT_EQ(found(index, 3), (std::set<SlotIndex::Slot>{4}));
}

TEST(SlotIndex, StopsWhenTheVisitorIsContent) {
  SlotIndex index;
  index.add(1, 10);
  index.add(1, 11);
  int visited = 0;
  index.each(1, [&](SlotIndex::Slot) { return ++visited == 1; });
  EXPECT_EQ(visited, 1);
}

// Twin: a multimap. Tags are few and adjacent, so that runs collide and wrap around.
RC_GTEST_PROP(SlotIndex, AgreesWithAMultimap, (const std::vector<std::pair<std::uint8_t, std::uint8_t>>& changes)) {
  SlotIndex index;
  std::set<std::pair<std::uint32_t, SlotIndex::Slot>> twin;
  std::map<SlotIndex::Slot, std::uint32_t> tag_of;  // a slot is added once
  for (const auto& [draw, number] : changes) {
    const std::uint32_t tag = 0xfffffff8u + draw % 24;  // some beyond zero
    const SlotIndex::Slot slot = number % 64;
    if (const auto was = tag_of.find(slot); was != tag_of.end()) {
      index.remove(was->second, slot);
      twin.erase({was->second, slot});
      tag_of.erase(was);
    } else {
      index.add(tag, slot);
      twin.emplace(tag, slot);
      tag_of[slot] = tag;
    }
    for (std::uint32_t probe = 0; probe < 24; ++probe) {
      std::set<SlotIndex::Slot> expected;
      for (const auto& [its, at] : twin) {
        if (its == 0xfffffff8u + probe) expected.insert(at);
      }
      RC_ASSERT(found(index, 0xfffffff8u + probe) == expected);
    }
  }
}

}  // namespace
}  // namespace dtrain::gossip
