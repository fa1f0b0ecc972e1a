// MemberTable against a plain map: what is found, counted, shared and summarised after any changes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/gossip/member_table.h"

namespace dtrain::gossip {
namespace {

using wire::MemberState;
constexpr std::uint32_t kBuckets = 16;
constexpr std::uint64_t kMembers = 150;  // more than two chunks

Member drawn() {
  auto identity = std::make_shared<wire::Identity>();
  const auto number = *rc::gen::inRange<std::uint64_t>(1, kMembers);
  identity->id = {number, 1};
  identity->name = "n" + std::to_string(*rc::gen::inRange(0, 5));  // names and addresses repeat
  identity->address = {"10.0.0." + std::to_string(*rc::gen::inRange(0, 3)), static_cast<std::uint16_t>(*rc::gen::inRange(1, 3))};
  Member member;
  member.identity = std::move(identity);
  member.incarnation = *rc::gen::inRange<std::uint64_t>(0, 4);
  const auto version = *rc::gen::inRange<std::uint64_t>(0, 3);
  if (version > 0) member.facts = facts_of({std::make_shared<const wire::Fact>(wire::Fact{wire::FactKey::free, version, "v"})});
  member.enter(static_cast<MemberState>(*rc::gen::inRange(0, 5)), Instant{7s});
  return member;
}

using Twin = std::map<MemberId, Member>;

void change(MemberTable& table, Twin& twin) {
  const Member member = drawn();
  const MemberId id = member.identity->id;
  const auto slot = table.find(id);
  RC_ASSERT((slot != MemberTable::kNone) == twin.contains(id));
  if (slot == MemberTable::kNone) {
    const auto added = table.add(member);
    RC_ASSERT(table.find(id) == added);
    twin[id] = member;
  } else if (*rc::gen::inRange(0, 3) == 0) {
    table.remove(slot);
    twin.erase(id);
  } else {
    table.set(slot, member);
    RC_ASSERT(table.find(id) == slot);  // slots stay
    twin[id] = member;
  }
}

void compare(const MemberTable& table, const Twin& twin) {
  RC_ASSERT(table.size() == twin.size());
  SyncTree tree(kBuckets);
  std::map<MemberState, std::uint32_t> counts;
  std::map<std::string, std::set<MemberId>> named, named_there;
  std::map<wire::Endpoint, std::set<MemberId>> at, at_there;
  for (const auto& [id, member] : twin) {
    const auto slot = table.find(id);
    RC_ASSERT(slot < table.slots() && table.used(slot));
    const Member& row = table.at(slot);
    RC_ASSERT(row.identity == member.identity && row.facts == member.facts);
    RC_ASSERT(row.incarnation == member.incarnation && row.state() == member.state() && row.since() == Instant{7s});
    tree.add(summary_of(member));
    ++counts[member.state()];
    named[member.identity->name].insert(id);
    at[member.identity->address].insert(id);
  }
  std::size_t used = 0;
  for (MemberTable::Slot slot = 0; slot < table.slots(); ++slot) used += table.used(slot) ? 1 : 0;
  RC_ASSERT(used == twin.size());
  for (int state = 0; state < 5; ++state)
    RC_ASSERT(table.count(static_cast<MemberState>(state)) == counts[static_cast<MemberState>(state)]);
  RC_ASSERT(table.tree().buckets() == tree.buckets());
  for (const auto& entry : named) {
    auto& there = named_there[entry.first];
    table.each_named(entry.first, [&](auto slot) { return there.insert(table.at(slot).identity->id), false; });
  }
  for (const auto& entry : at) {
    auto& there = at_there[entry.first];
    table.each_at(entry.first, [&](auto slot) { return there.insert(table.at(slot).identity->id), false; });
  }
  RC_ASSERT(named == named_there);
  RC_ASSERT(at == at_there);
}

RC_GTEST_PROP(MemberTable, AgreesWithAMap, ()) {
  MemberTable table(kBuckets);
  Twin twin;
  const int changes = *rc::gen::inRange(0, 300);
  for (int step = 0; step < changes; ++step) change(table, twin);
  compare(table, twin);
}

RC_GTEST_PROP(MemberTable, ChangesOfASharedTableDoNotReachTheOther, ()) {
  MemberTable table(kBuckets);
  Twin twin;
  for (int step = *rc::gen::inRange(0, 100); step > 0; --step) change(table, twin);
  MemberTable other(kBuckets);
  other.share(table);
  Twin other_twin = twin;
  for (int step = *rc::gen::inRange(0, 100); step > 0; --step) {
    if (*rc::gen::inRange(0, 2) == 0) {
      change(table, twin);
    } else {
      change(other, other_twin);
    }
  }
  compare(table, twin);
  compare(other, other_twin);
}

TEST(MemberTable, FreedSlotsAreUsedAgain) {
  MemberTable table(kBuckets);
  Member member;
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    auto identity = std::make_shared<wire::Identity>();
    identity->id = {number, 1};
    member.identity = identity;
    table.remove(table.add(member));
  }
  EXPECT_EQ(table.slots(), 1u);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.tree().root(), 0u);
}

TEST(MemberTable, OfTwoFactsOfOneKeyTheHigherVersionCounts) {
  const auto fact = [](std::uint64_t version) { return std::make_shared<const wire::Fact>(wire::Fact{wire::FactKey::free, version, ""}); };
  Member member;
  member.facts = facts_of({fact(2), nullptr, fact(3), fact(1)});
  EXPECT_EQ(member.fact_version(static_cast<std::size_t>(wire::FactKey::free)), 3u);
  EXPECT_EQ(member.fact_version(static_cast<std::size_t>(wire::FactKey::resources)), 0u);
  EXPECT_EQ(facts_of({}), nullptr);
}

}  // namespace
}  // namespace dtrain::gossip
