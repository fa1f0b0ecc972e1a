// What keeps the audit short: refusals are counted, one type of event pushes out no other.
#include "common/node/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/node/local_events.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

wire::EventView event(const std::string& type) {
  wire::EventView e;
  e.type = type;
  return e;
}

TEST(LocalEvents, OneTypePushesNothingElseOut) {
  LocalEvents events;
  events.begin_above(1000);
  const std::uint64_t first = events.add(event("member.down"));
  EXPECT_EQ(first, 1001u);
  for (std::size_t i = 0; i < 3 * kLocalEvents; ++i) events.add_bounded(event("audit.exec"));
  EXPECT_EQ(events.all().size(), kLocalOfType + 1);
  EXPECT_EQ(events.all().front().local, first);
  EXPECT_EQ(events.all().back().local, first + 3 * kLocalEvents) << "the oldest of its type went";
  for (std::size_t i = 0; i < 2 * kLocalEvents; ++i) events.add(event("member.suspect"));
  EXPECT_EQ(events.all().size(), kLocalEvents);
}

TEST(LocalEvents, ANewerOneStandsForAnOlder) {
  LocalEvents events;
  events.add(event("a"));
  const std::uint64_t older = events.add(event("b"));
  events.add(event("c"));
  events.replace(older);
  events.replace(older);
  events.replace(77);
  ASSERT_EQ(events.all().size(), 2u);
  EXPECT_EQ(events.all().front().type, "a");
  EXPECT_EQ(events.all().back().type, "c");
}

TEST(Refusals, AreSaidAtOnceAndThenCounted) {
  Refusals refusals;
  const Caller eve{"eve", 1002}, mallory{"mallory", 1003};
  const Instant t0(100s);
  const auto first = refusals.refused(t0, eve, "could not cancel a");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->count, 1u);
  EXPECT_EQ(first->said_as, 0u);
  refusals.told(eve, 7);
  EXPECT_EQ(refusals.deadline(), kNever) << "nothing is held back";
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(refusals.refused(t0 + 1s, eve, "could not cancel b" + std::string(1000, 'x')));
  EXPECT_TRUE(refusals.refused(t0 + 1s, mallory, "x")) << "each for themselves";
  EXPECT_EQ(refusals.deadline(), t0 + kRefusalEvery);
  EXPECT_THAT(refusals.due(t0 + kRefusalEvery - 1s), IsEmpty());
  const auto due = refusals.due(t0 + kRefusalEvery);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].count, 1001u);
  EXPECT_EQ(due[0].said_as, 7u);
  EXPECT_EQ(due[0].reason.size(), kRefusalBytes);
  EXPECT_THAT(refusals.due(t0 + 10 * kRefusalEvery), IsEmpty());
  EXPECT_TRUE(refusals.refused(t0 + 10 * kRefusalEvery, eve, "again"));
}

TEST(Refusals, OfNoMoreCallersThanTheLimit) {
  Refusals refusals;
  for (std::uint32_t uid = 0; uid <= kRefusedCallers; ++uid) EXPECT_TRUE(refusals.refused(Instant(uid * 1ms), {"", uid}, "x"));
  EXPECT_TRUE(refusals.refused(Instant(1s), {"", 0}, "x")) << "forgotten";
  EXPECT_FALSE(refusals.refused(Instant(1s), {"", kRefusedCallers}, "x"));
}

TEST(AccessDifference, SaysWhoseRoleIsAnother) {
  const Access before{{{"ada", Role::submit}, {"bob", Role::submit}}, Role::view};
  EXPECT_EQ(difference(before, before), "");
  EXPECT_EQ(difference(before, {{{"bob", Role::operate}, {"eve", Role::view}}, Role::submit}),
            "others: view -> submit, ada: submit -> none of their own, bob: submit -> operate, eve: none of their own -> view");
  Access many;
  for (int i = 0; i < 1000; ++i) many.users["user" + std::to_string(i)] = Role::view;
  EXPECT_LT(difference({}, many).size(), kDifferenceBytes + 32);
  EXPECT_THAT(difference({}, many), HasSubstr(" more"));
}

}  // namespace
}  // namespace dtrain::node
