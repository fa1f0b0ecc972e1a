// Who may do what: the table of roles, and that every verb asks it.
#include "common/node/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cluster/state.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;

TEST(Roles, RootAndTheAgentsUserOperate) {
  const Access access{{{"ada", Role::submit}, {"ops", Role::operate}, {"root", Role::view}}, Role::view};
  EXPECT_EQ(role_of({"ada", 1000}, access, 990), Role::submit);
  EXPECT_EQ(role_of({"ops", 1001}, access, 990), Role::operate);
  EXPECT_EQ(role_of({"eve", 1002}, access, 990), Role::view);
  EXPECT_EQ(role_of({"", 1003}, access, 990), Role::view) << "a uid without a name";
  EXPECT_EQ(role_of({"root", 0}, access, 990), Role::operate);
  EXPECT_EQ(role_of({"dtrain", 990}, access, 990), Role::operate);
  EXPECT_EQ(role_of({"eve", 1002}, {{}, Role::submit}, 990), Role::submit);
}

TEST(Roles, WhatEachMayDoToAJob) {
  cluster::JobRecord job;
  job.user = {"ada", 1000};
  const Caller ada{"ada", 1000}, bob{"bob", 1001}, root{"root", 0};
  const auto may = [&](Deed deed, const Caller& caller, Role role) { return permit(deed, caller, role, job, "could not").has_value(); };
  struct Row {
    Caller caller;
    Role role;
    bool read, change, enter;
  };
  for (const Row& row :
       {Row{ada, Role::view, true, false, false}, Row{ada, Role::submit, true, true, true}, Row{bob, Role::view, false, false, false},
        Row{bob, Role::submit, false, false, false}, Row{bob, Role::operate, true, true, false},
        Row{{"bob", 1000}, Role::submit, false, false, false}, Row{root, Role::operate, true, true, true}}) {
    EXPECT_EQ(may(Deed::read, row.caller, row.role), row.read) << row.caller.user << " " << to_string(row.role);
    EXPECT_EQ(may(Deed::change, row.caller, row.role), row.change) << row.caller.user << " " << to_string(row.role);
    EXPECT_EQ(may(Deed::enter, row.caller, row.role), row.enter) << row.caller.user << " " << to_string(row.role);
  }
}

class AccessTest : public WorkingTown {
 protected:
  // What "somebody" (uid 1000) may from now on, at all agents or at one.
  void let(Role role) {
    for (House* house : houses) let(*house, role);
  }
  static void let(House& house, Role role) { house.give(Reconfigured{house.started.facts.labels, "", {{{"somebody", role}}, Role::view}}); }
  template <class Reply_, class Query>
  std::string refused(MessageType type, const Query& query, std::size_t at = 0, std::uint32_t uid = 1000) {
    const auto reply = ask<Reply_>(*houses[at], type, query, uid);
    return reply ? "" : reply.error().text();
  }
  std::string submitted(const std::string& name, std::size_t at = 0) {
    wire::SubmitRequest request;
    request.spec = wire::encode(generic(name, 1));
    return refused<wire::SubmitReply>(MessageType::submit, request, at);
  }
  std::string cancelled(const std::string& name, std::uint32_t uid = 1000) {
    wire::ActionRequest request;
    request.job = name;
    request.action = wire::Action::cancel;
    return refused<wire::Empty>(MessageType::action, request, 0, uid);
  }
};

TEST_F(AccessTest, WhoMayOnlyLookSubmitsNothing) {
  let(Role::view);
  EXPECT_THAT(submitted("j"),
              HasSubstr("could not submit as somebody: this agent lets somebody only look; ask an administrator for the role "
                        "`submit` (access.users.somebody in dtraind.yaml of the agents)"));
  EXPECT_NE(refused<wire::Empty>(MessageType::put_blob, wire::PutBlobRequest{}), "");
  wire::SubmitRequest plan;
  plan.spec = wire::encode(generic("p", 1));
  EXPECT_NE(refused<wire::TaskSpecsReply>(MessageType::plan, plan), "");
  EXPECT_EQ(refused<wire::JobsReply>(MessageType::query_jobs, wire::JobsRequest{}), "");
  let(Role::submit);
  EXPECT_EQ(submitted("j"), "");
  let(Role::view);
  EXPECT_THAT(cancelled("j"), HasSubstr("somebody may only look"));
  EXPECT_THAT(cancelled("j", 1001), HasSubstr("it belongs to somebody"));
}

TEST_F(AccessTest, OperatorsSteerAllJobsAndHosts) {
  submit(generic("j", 1));
  let(Role::submit);
  EXPECT_THAT(refused<wire::Empty>(MessageType::drain, wire::DrainRequest{"n3", "", true, 0}), HasSubstr("only operators may"));
  EXPECT_THAT(refused<wire::Empty>(MessageType::leave, wire::LeaveRequest{"n3"}), HasSubstr("only operators may"));
  EXPECT_THAT(cancelled("j", 1001), HasSubstr("it belongs to"));
  let(Role::operate);
  EXPECT_EQ(refused<wire::Empty>(MessageType::drain, wire::DrainRequest{"n3", "", true, 0}), "");
  wire::ActionRequest code;
  code.job = "j";
  code.action = wire::Action::restart;
  code.package_digest = std::string(64, 'a');
  EXPECT_THAT(refused<wire::Empty>(MessageType::action, code, 0, 1001), HasSubstr("it belongs to"));
  EXPECT_EQ(cancelled("j", 1001), "");
}

// The log has no more lines than minutes, however often one tries.
TEST_F(AccessTest, RefusalsAreLoggedOnceAMinute) {
  let(Role::view);
  for (int i = 0; i < 5; ++i) EXPECT_NE(submitted("j"), "");
  EXPECT_EQ(houses[0]->log.count("access.refused"), 1u);
  town.run_for(60s);
  EXPECT_NE(submitted("j"), "");
  EXPECT_EQ(houses[0]->log.count("access.refused"), 2u);
}

}  // namespace
}  // namespace dtrain::node
