// Who did what, and who was refused what: events of the ledger at every node, the rest at the node where it happened.
#include <gmock/gmock.h>

#include "common/node/local_events.h"
#include "common/node/refusals.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::MessageType;

// ---------------------------------------------------------------- the parts

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

// ---------------------------------------------------------------- in a cluster

class AuditTest : public WorkingTown {
 protected:
  AuditTest() {
    for (House* house : houses) let(*house, Role::operate);
  }
  // What "somebody" (uid 1000) may.
  static void let(House& house, Role role) {
    house.give(Reconfigured{house.started.facts.labels, "", {{{"somebody", role}}, Role::view}, {"root", 0}, false});
  }
  // "audit.cancel j (message): reason", of this type
  std::vector<std::string> told(const std::string& type, std::size_t at = 0) {
    std::vector<std::string> all;
    for (const auto& e : houses[at]->events())
      if (e.type == type) all.push_back(e.object + " (" + e.message + ")" + (e.reason.empty() ? "" : ": " + e.reason));
    return all;
  }
  template <class Query>
  void asks(MessageType type, const Query& query, std::size_t at, std::uint32_t uid = 1000) {
    (void)ask<wire::Empty>(*houses[at], type, query, uid);
  }
};

TEST_F(AuditTest, WhatTheLedgerChangedEveryNodeTells) {
  submit(generic("j", 1));
  wire::ActionRequest cancel;
  cancel.job = "j";
  cancel.action = wire::Action::cancel;
  asks(MessageType::action, cancel, 1);
  asks(MessageType::drain, wire::DrainRequest{"n3", "disk", true, 0}, 2);
  for (std::size_t at = 0; at < houses.size(); ++at) {
    EXPECT_THAT(told("audit.submit", at), ElementsAre("j (job=j user=somebody uid=1000 at=n1 outcome=accepted)"));
    EXPECT_THAT(told("audit.cancel", at), ElementsAre("j (job=j user=somebody uid=1000 at=n2 outcome=accepted)"));
    EXPECT_THAT(told("audit.drain", at), ElementsAre("n3 (node=n3 user=somebody uid=1000 at=n3 outcome=accepted): disk"));
  }
  std::size_t logged = 0;
  for (House* house : houses) logged += house->log.count("audit.cancel job=j user=somebody uid=1000 at=n2 outcome=accepted");
  EXPECT_EQ(logged, 1u) << "the coordinator's";
}

TEST_F(AuditTest, ExecIsToldWhereTheTaskIs) {
  submit(generic("j", 1));
  work();
  const std::string on = tasks("j").at("worker-0").node;
  const std::size_t at = static_cast<std::size_t>(on.back() - '1');
  wire::ExecRequest exec;
  exec.job = "j";
  exec.task = "worker-0";
  exec.command = {"/bin/sh", "-c", "echo secret"};
  asks(MessageType::exec, exec, at);
  EXPECT_THAT(told("audit.exec", at), ElementsAre("j/worker-0 (job=j task=j/worker-0 user=somebody uid=1000 at=" + on + " outcome=accepted): /bin/sh"));
  EXPECT_EQ(houses[at]->log.count("secret"), 0u);
}

TEST_F(AuditTest, MembersAndRolesAreToldWhereItWasAsked) {
  EXPECT_THAT(told("audit.access"), ElementsAre("n1 (node=n1 user=root uid=0 at=n1 outcome=accepted): somebody: none of their own -> operate"));
  let(*houses[0], Role::operate);
  EXPECT_EQ(told("audit.access").size(), 1u) << "the same again";
  town.kill(*houses[2]);
  town.run_for(60s);
  asks(MessageType::leave, wire::LeaveRequest{"n3"}, 0);
  EXPECT_THAT(told("audit.forget-node"), ElementsAre("n3 (node=n3 user=somebody uid=1000 at=n1 outcome=accepted)"));
  asks(MessageType::leave, wire::LeaveRequest{"n3"}, 0);
  EXPECT_EQ(told("audit.leave").size(), 0u);
}

TEST_F(AuditTest, AFloodOfRefusalsIsOneEventWithACount) {
  submit(generic("j", 1));
  let(*houses[0], Role::view);
  asks(MessageType::drain, wire::DrainRequest{"n3", "", true, 0}, 0, 1001);
  for (int i = 0; i < 300; ++i) (void)houses[0]->ask<wire::Empty>(MessageType::drain, wire::DrainRequest{"n3", "", true, 0}, 1000);
  EXPECT_EQ(told("access.refused").size(), 2u);
  town.run_for(kRefusalEvery);
  const auto events = told("access.refused");
  ASSERT_EQ(events.size(), 2u) << "the newer stands for the older";
  EXPECT_THAT(events, Contains(HasSubstr("uid=1000 at=n1 outcome=refused count=300): could not drain host n3: only operators may")));
  EXPECT_EQ(houses[0]->log.count("access.refused"), 3u);
  EXPECT_EQ(told("audit.submit").size(), 1u);
  EXPECT_THAT(told("audit.drain"), IsEmpty());
}

}  // namespace
}  // namespace dtrain::node
