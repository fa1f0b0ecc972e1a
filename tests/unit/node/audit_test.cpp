// Who did what, and who was refused what: events of the ledger at every node, the rest at the node where it happened.
#include <gmock/gmock.h>

#include "common/node/refusals.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::MessageType;

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
  EXPECT_THAT(told("audit.exec", at),
              ElementsAre("j/worker-0 (job=j task=j/worker-0 user=somebody uid=1000 at=" + on + " outcome=accepted): /bin/sh"));
  EXPECT_EQ(houses[at]->log.count("secret"), 0u);
}

TEST_F(AuditTest, MembersAndRolesAreToldWhereItWasAsked) {
  EXPECT_THAT(told("audit.access"),
              ElementsAre("n1 (node=n1 user=root uid=0 at=n1 outcome=accepted): others: submit -> view, somebody: none of "
                          "their own -> operate"));
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
  town.run_for(kRefusalEvery + 1s);
  const auto events = told("access.refused");
  ASSERT_EQ(events.size(), 2u) << "the newer stands for the older";
  EXPECT_THAT(events, Contains(HasSubstr("uid=1000 at=n1 outcome=refused count=300): could not drain host n3: only operators may")));
  EXPECT_EQ(houses[0]->log.count("access.refused"), 3u);
  EXPECT_EQ(told("audit.submit").size(), 1u);
  EXPECT_THAT(told("audit.drain"), IsEmpty());
}

}  // namespace
}  // namespace dtrain::node
