// Several hosts with one coordinator: what is placed where, and what becomes of it when a host is away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using wire::MessageType;

class HostsTest : public ::testing::Test {
 protected:
  explicit HostsTest(Duration agent_grace = NodeOptions{}.agent_grace) {
    for (const char* name : {"n1", "n2", "n3", "n4"}) {
      houses.push_back(&town.add(name));
      houses.back()->started.facts.task_address = houses.back()->address().ip;
      houses.back()->options.agent_grace = agent_grace;
    }
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
  }
  job::JobSpec spread(std::uint32_t workers, const std::string& name = "j") {
    job::JobSpec spec;
    spec.name = name;
    spec.framework = job::Framework::generic;
    spec.policy.placement = job::Placement::spread;
    job::RoleSpec role;
    role.replicas = role.min_replicas = workers;
    role.command = {"true"};
    spec.roles["worker"] = role;
    return spec;
  }
  void submit(House& house, const job::JobSpec& spec) {
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    const std::uint64_t before = house.requests();
    (void)house.ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
    town.run_for(1s);
    const auto reply = house.answer<wire::SubmitReply>(before + 1);
    ASSERT_TRUE(reply) << reply.error().text();
  }
  std::vector<wire::TaskView> tasks(House& house, const std::string& job = "j") {
    const auto reply = house.ask<wire::TasksReply>(MessageType::query_tasks, wire::JobName{job});
    return reply ? reply->tasks : std::vector<wire::TaskView>{};
  }
  wire::JobDescription described(House& house, const std::string& job = "j") {
    return house.ask<wire::JobDescription>(MessageType::describe_job, wire::JobName{job}).value_or(wire::JobDescription{});
  }
  static std::vector<AssignmentId> staged(const House& house) {
    std::vector<AssignmentId> ids;
    for (const Effect& effect : house.effects)
      if (const auto* stage = std::get_if<Stage>(&effect)) ids.push_back(stage->id);
    return ids;
  }
  House& house_of(const std::string& name) {
    return **std::ranges::find_if(houses, [&](House* house) { return house->started.facts.name == name; });
  }

  Town town;
  std::vector<House*> houses;
};

TEST_F(HostsTest, OneLineSaysWhoCoordinatesAndWhatRuns) {
  EXPECT_EQ(houses[3]->status_line(), "coordinator n1; 4 of 4 members alive; no jobs; 0 tasks run here");
  submit(*houses[0], spread(4));
  EXPECT_THAT(houses[3]->status_line(), HasSubstr("; jobs: 1 "));
  houses[0]->kill();
  town.run_for(60s);
  EXPECT_THAT(houses[3]->status_line(), HasSubstr("3 of 4 members alive"));
}

TEST_F(HostsTest, WhoSubmitsWhatNoHostCanEverTakeIsTold) {
  const auto warnings = [&](House& house, const std::string& name, std::uint32_t workers, std::uint32_t gpus, std::uint32_t at_least = 0) {
    job::JobSpec spec = spread(workers);
    spec.name = name;
    spec.roles["worker"].resources.gpus = gpus;
    if (at_least != 0) spec.roles["worker"].min_replicas = at_least;
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    const std::uint64_t number = house.requests() + 1;
    (void)house.ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
    town.run_for(1s);
    const auto reply = house.answer<wire::SubmitReply>(number);
    EXPECT_TRUE(reply) << reply.error().text();
    return reply ? reply->warnings : std::vector<std::string>{"refused"};
  };
  const std::string what = "it has no place in the cluster as it is now, even with nothing else there: ";
  for (House* house : houses) {  // whoever is asked
    const std::string at = house->started.facts.name;
    EXPECT_THAT(warnings(*house, "wide-" + at, 1, 3), ElementsAre(HasSubstr(what + "worker-0 needs 3 GPUs on one host, best is 2 on n")));
    EXPECT_THAT(warnings(*house, "many-" + at, 5, 2), ElementsAre(HasSubstr(what)));
    EXPECT_THAT(warnings(*house, "fits-" + at, 4, 2), IsEmpty()) << "with nothing else there";
  }
  EXPECT_THAT(warnings(*houses[0], "waits", 4, 2), IsEmpty()) << "others have the place now";
}

TEST_F(HostsTest, EveryMemberHasTheLogAndIsGivenTasks) {
  for (House* house : houses)
    for (const wire::NodeView& node : house->nodes()) EXPECT_TRUE(node.schedulable) << node.name << " at " << house->address().ip;
  submit(*houses[1], spread(4));
  for (House* house : houses) {
    EXPECT_EQ(staged(*house).size(), 1u) << house->address().ip;
    const auto views = tasks(*house);
    ASSERT_EQ(views.size(), 4u);
    for (const wire::TaskView& view : views) EXPECT_EQ(view.state, "Fetching") << view.task;
    for (const wire::TaskView& view : views) EXPECT_EQ(house_of(view.node).address().ip, view.address) << view.task;
  }
}

TEST_F(HostsTest, WhatALostHostHadIsBegunElsewhere) {
  submit(*houses[0], spread(4));
  town.kill(*houses[3]);  // its agent alone: the host is up
  town.run_for(10s);
  EXPECT_TRUE(std::ranges::any_of(tasks(*houses[0]), [](const auto& t) { return t.node == "n4"; })) << "it may come back";
  town.run_for(20s);
  const auto views = tasks(*houses[0]);
  ASSERT_EQ(views.size(), 4u);
  for (const auto& view : views) EXPECT_NE(view.node, "n4") << view.task;
  EXPECT_FALSE(houses[0]->nodes("n4").front().schedulable);
}

class PatientHostsTest : public HostsTest {
 protected:
  PatientHostsTest() : HostsTest(5min) {}
};

TEST_F(PatientHostsTest, WhatMustNotRunTwiceWaitsForItsHost) {
  job::JobSpec spec = spread(4);
  spec.roles["worker"].exclusive = true;
  submit(*houses[0], spec);
  for (House* house : houses)
    for (const AssignmentId& id : staged(*house)) {
      house->give(Staged{id, std::string("/work")});
      house->give(ShimUp{id, {}});
    }
  town.run_for(1s);
  town.kill(*houses[3]);
  town.run_for(40s);
  EXPECT_TRUE(std::ranges::any_of(tasks(*houses[0]), [](const auto& t) { return t.node == "n4"; }));
  EXPECT_THAT(described(*houses[0]).waiting_for, HasSubstr("may run there until its lease is over; dtrainctl forget-node n4"));
  (void)houses[0]->ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{"n4"}, 0);
  town.run_for(5s);
  EXPECT_FALSE(std::ranges::any_of(tasks(*houses[0]), [](const auto& t) { return t.node == "n4"; }));
}

}  // namespace
}  // namespace dtrain::node
