// Hosts that are drained: what leaves them, when, and what stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;

class DrainTest : public ::testing::Test {
 protected:
  DrainTest() {
    for (const char* name : {"n1", "n2", "n3"}) {
      houses.push_back(&town.add(name));
      House& house = *houses.back();
      house.started.facts.task_address = house.address().ip;
      for (std::uint32_t i = 0; i < 2; ++i) house.started.facts.gpus[i].index = i;
      house.options.down_grace = 5s;
    }
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
  }
  static job::JobSpec generic(const std::string& name, std::uint32_t workers, std::uint32_t gpus = 0) {
    job::JobSpec spec;
    spec.name = name;
    spec.framework = job::Framework::generic;
    spec.policy.placement = job::Placement::spread;
    job::RoleSpec role;
    role.replicas = role.min_replicas = workers;
    role.command = {"true"};
    role.resources.gpus = gpus;
    spec.roles["worker"] = role;
    return spec;
  }
  static job::JobSpec ranks(const std::string& name, std::uint32_t workers, std::uint32_t gpus) {
    job::JobSpec spec = generic(name, workers, gpus);
    spec.roles["worker"].command = {"true", "{hosts:worker}"};  // each knows all others' addresses
    return spec;
  }
  void submit(const job::JobSpec& spec) {
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    const auto reply = ask<wire::SubmitReply>(*houses[0], MessageType::submit, submit, 1000);
    ASSERT_TRUE(reply) << reply.error().text();
  }
  template <class Reply_, class Query>
  Result<Reply_> ask(House& house, MessageType type, const Query& query, std::uint32_t uid = 0) {
    const std::uint64_t before = house.requests();
    (void)house.ask<Reply_>(type, query, uid);
    town.run_for(1s);
    return house.answer<Reply_>(before + 1);
  }
  Result<wire::Empty> drain(const std::string& node, bool on = true, Duration deadline = {}, std::size_t at = 0) {
    wire::DrainRequest request{node, "disk", on, std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count()};
    return ask<wire::Empty>(*houses[at], MessageType::drain, request);
  }
  std::map<std::string, wire::TaskView> tasks(const std::string& job, std::size_t at = 0) {
    std::map<std::string, wire::TaskView> by_name;
    const auto reply = houses[at]->ask<wire::TasksReply>(MessageType::query_tasks, wire::JobName{job});
    for (const auto& view : reply.value_or(wire::TasksReply{}).tasks) by_name[view.task] = view;
    return by_name;
  }
  wire::JobDescription described(const std::string& job, std::size_t at = 0) {
    return houses[at]->ask<wire::JobDescription>(MessageType::describe_job, wire::JobName{job}).value_or(wire::JobDescription{});
  }
  // Carries out what the agents want of their tasks: staging, starts and stops, as real ones would.
  void work(Duration time = 3s) {
    for (Duration passed{}; passed < time; passed += 250ms) {
      for (House* house : houses) {
        if (!house->runs()) continue;
        for (std::size_t& next = done[house]; next < house->effects.size(); ++next) act(*house, Effect(house->effects[next]));
      }
      town.run_for(250ms);
    }
  }
  void act(House& house, const Effect& effect) {
    if (const auto* stage = std::get_if<Stage>(&effect)) {
      house.give(Staged{stage->id, std::string("/work")});
    } else if (const auto* launch = std::get_if<LaunchShim>(&effect)) {
      house.give(ShimUp{launch->spec.id, {}});
    } else if (const auto* start = std::get_if<StartAttempt>(&effect)) {
      attempts[start->id] = start->attempt;
      house.give(AttemptStarted{start->id, start->attempt, 100, {}});
    } else if (const auto* kill = std::get_if<KillTask>(&effect)) {
      ++kills;
      end(house, kill->id, 9);
    } else if (const auto* signal = std::get_if<SignalTask>(&effect)) {
      ++signals;
      if (!stubborn) end(house, signal->id, 15);
    } else if (const auto* gone = std::get_if<EndShim>(&effect)) {
      house.give(ShimGone{gone->id});
    }
  }
  void end(House& house, const AssignmentId& id, std::int32_t signal) {
    AttemptExited exited;
    exited.id = id;
    exited.attempt = attempts[id];
    exited.exit.signal = signal;
    house.give(exited);
  }
  std::string where(const std::string& job) {
    std::string text;
    for (const auto& [name, view] : tasks(job)) text += name + "@" + view.node + "/" + view.state + " ";
    return text;
  }
  bool any_on(const std::string& job, const std::string& node) {
    return where(job).find("@" + node + "/") != std::string::npos;
  }

  Town town;
  std::vector<House*> houses;
  std::map<House*, std::size_t> done;
  std::map<AssignmentId, AttemptNumber> attempts;
  int kills = 0, signals = 0;
  bool stubborn = false;  // tasks do not end by themselves
};

TEST_F(DrainTest, TasksThatNobodyMissesMoveAloneAndAtNoCost) {
  submit(generic("j", 3));
  work();
  ASSERT_EQ(where("j"), "worker-0@n1/Running worker-1@n2/Running worker-2@n3/Running ");
  ASSERT_TRUE(drain("n3", true, {}, 1)) << "asked of another agent";
  work(6s);
  EXPECT_FALSE(any_on("j", "n3")) << where("j");
  const wire::JobView job = described("j").job;
  EXPECT_EQ(job.state, "Running");
  EXPECT_EQ(job.generation, 1u);
  EXPECT_EQ(job.restarts, 0u);
  EXPECT_EQ(signals, 1);
  EXPECT_EQ(kills, 0);
  const wire::NodeView node = houses[2]->nodes("n3").front();
  ASSERT_TRUE(node.drained);
  EXPECT_FALSE(node.schedulable);
  EXPECT_EQ(node.drained->tasks, 0u);
  EXPECT_EQ(node.drained->reason, "disk");
  EXPECT_EQ(houses[1]->status().drained.at("n3"), "disk");
  submit(generic("k", 3));
  work();
  EXPECT_FALSE(any_on("k", "n3")) << where("k");
  ASSERT_TRUE(drain("n3", false));
  submit(generic("l", 3));
  work();
  EXPECT_TRUE(any_on("l", "n3")) << where("l");
}

TEST_F(DrainTest, AGangWithoutRoomStaysAndMovesWhenRoomComesAndNobodyTakesIt) {
  submit(ranks("gang", 4, 1));   // of 6 GPUs
  work();
  ASSERT_TRUE(any_on("gang", "n3")) << where("gang");
  submit(generic("small", 2, 1));  // the other two
  work();
  ASSERT_EQ(tasks("small").size(), 2u) << described("small").waiting_for;
  const std::string before = where("gang");
  ASSERT_TRUE(drain("n3"));
  work(6s);
  // What is on n3 of the small job cannot go either: all is full.
  EXPECT_EQ(where("gang"), before);
  for (const std::size_t at : {0u, 2u}) {
    EXPECT_THAT(described("gang", at).waiting_for, HasSubstr("stays on drained host n3: "));
    EXPECT_THAT(described("gang", at).waiting_for, HasSubstr("1 GPU"));
  }
  const auto drained = houses[0]->nodes("n3").front().drained;
  ASSERT_TRUE(drained && !drained->jobs.empty());
  EXPECT_THAT(drained->jobs.front().why, HasSubstr("stays: "));
  EXPECT_EQ(signals, 0);
  // Room for all of the gang: it is stopped, and while it ends others come and want that room.
  wire::ActionRequest cancel;
  cancel.action = wire::Action::cancel;
  cancel.job = "small";
  stubborn = true;
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], MessageType::action, cancel, 1000));
  work(1s);
  stubborn = false;
  for (House* house : houses)
    for (const auto& [id, attempt] : std::map(attempts))
      if (described("small").job.id == id.job) end(*house, id, 15);
  stubborn = true;
  work(2s);
  EXPECT_EQ(described("gang").job.generation, 1u);
  EXPECT_THAT(where("gang"), HasSubstr("Stopping"));
  submit(generic("thief", 2, 1));
  work(2s);
  EXPECT_TRUE(tasks("thief").empty()) << where("thief");
  town.run_for(60s);  // the grace is over: killed
  work(6s);
  EXPECT_FALSE(any_on("gang", "n3")) << where("gang");
  EXPECT_EQ(described("gang").job.generation, 2u);
  EXPECT_EQ(described("gang").job.state, "Running");
  EXPECT_EQ(described("gang").job.restarts, 0u);
  EXPECT_TRUE(tasks("thief").empty()) << where("thief");
  ASSERT_TRUE(drain("n3", false));
  work();
  EXPECT_EQ(tasks("thief").size(), 2u) << described("thief").waiting_for;
}

TEST_F(DrainTest, AfterItsDeadlineWhatStaysIsHaltedAndWaits) {
  submit(ranks("gang", 6, 1));
  work();
  ASSERT_TRUE(drain("n3", true, 20s));
  work(6s);
  EXPECT_EQ(described("gang").job.state, "Running");
  work(20s);
  EXPECT_EQ(described("gang").job.state, "Pending") << where("gang");
  EXPECT_EQ(described("gang").job.restarts, 0u);
  EXPECT_THAT(described("gang").waiting_for, HasSubstr("cordoned"));
  EXPECT_EQ(houses[0]->nodes("n3").front().drained->tasks, 0u);
  ASSERT_TRUE(drain("n3", false));
  work();
  EXPECT_EQ(described("gang").job.state, "Running") << described("gang").waiting_for;
}

TEST_F(DrainTest, WhatIsBoundToTheHostStaysAndSaysSo) {
  job::JobSpec spec = generic("bound", 2);
  spec.package_digest = std::string(64, 'a');
  submit(spec);  // on n1
  work();
  ASSERT_TRUE(drain("n1"));
  work(10s);
  EXPECT_TRUE(any_on("bound", "n1"));
  EXPECT_THAT(described("bound", 1).waiting_for, HasSubstr("stays on drained host n1: its package is on n1 only"));
}

TEST_F(DrainTest, AHeldPlaceWhoseHostDiesIsForgotten) {
  submit(ranks("gang", 2, 1));
  work();
  std::string drained = any_on("gang", "n3") ? "n3" : "n2", other = drained == "n3" ? "n2" : "n3";
  ASSERT_TRUE(any_on("gang", drained)) << where("gang");
  stubborn = true;
  ASSERT_TRUE(drain(drained));
  work(2s);
  ASSERT_THAT(where("gang"), HasSubstr("Stopping"));
  town.kill(*houses[other == "n3" ? 2 : 1]);
  town.run_for(70s);
  work(20s);
  EXPECT_EQ(described("gang").job.state, "Running") << where("gang") << described("gang").waiting_for;
  EXPECT_FALSE(any_on("gang", drained));
  EXPECT_FALSE(any_on("gang", other)) << where("gang");
}

TEST_F(DrainTest, ADrainedCoordinatorHandsOverOnceAndNothingRestarts) {
  submit(generic("j", 2));
  work();
  ASSERT_EQ(houses[0]->status().coordinator->node, "n1");
  ASSERT_TRUE(drain("n1"));
  work(10s);
  const std::string leader = houses[1]->status().coordinator->node;
  EXPECT_NE(leader, "n1");
  EXPECT_FALSE(any_on("j", "n1")) << where("j");
  EXPECT_EQ(described("j", 1).job.restarts, 0u);
  EXPECT_EQ(houses[0]->log.count("council.hands-over"), 1u);
  ASSERT_TRUE(drain("n1", true, {}, 2)) << "again";
  work(10s);
  EXPECT_EQ(houses[0]->log.count("council.hands-over"), 1u);
}

TEST_F(DrainTest, WhereAllAreDrainedNobodyIsHandedTo) {
  for (const char* name : {"n2", "n3", "n1"}) ASSERT_TRUE(drain(name));
  work(10s);
  EXPECT_EQ(houses[0]->status().coordinator->node, "n1");
  EXPECT_EQ(houses[0]->log.count("council.hands-over"), 0u);
}

TEST_F(DrainTest, OnlyAnOperatorMayAndTheNameMustBeKnown) {
  const auto stranger = ask<wire::Empty>(*houses[0], MessageType::drain, wire::DrainRequest{"n2", "", true, 0}, 1000);
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code, ErrorCode::refused);
  const auto unknown = drain("n22");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::not_found);
  EXPECT_THAT(unknown.error().text(), HasSubstr("did you mean n2?"));
  EXPECT_TRUE(drain(houses[1]->started.facts.id)) << "by its id";
  EXPECT_TRUE(houses[0]->nodes("n2").front().drained);
  EXPECT_TRUE(drain("n2", false));
  EXPECT_TRUE(drain("n2", false)) << "repeating it is no error";
}

}  // namespace
}  // namespace dtrain::node
