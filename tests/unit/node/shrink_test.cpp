// A job whose host is gone goes on with fewer tasks where its file allows it, and is whole again with a later generation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using wire::MessageType;

class ShrinkTest : public WorkingTown {
 protected:
  // Of six GPUs on three houses.
  static job::JobSpec elastic(const std::string& name, std::uint32_t workers, std::uint32_t least) {
    job::JobSpec spec = ranks(name, workers, 1);
    spec.roles["worker"].min_replicas = least;
    spec.policy.backoff_limit = 1;
    return spec;
  }
  void act(wire::Action action, const std::string& job, std::uint32_t workers = 0) {
    wire::ActionRequest request;
    request.action = action;
    request.job = job;
    request.role = "worker";
    request.replicas = workers;
    const auto reply = ask<wire::Empty>(*houses[0], MessageType::action, request, 1000);
    ASSERT_TRUE(reply) << reply.error().text();
  }
  // Once it has no room for all its six tasks.
  void shrink(const job::JobSpec& spec) {
    submit(spec);
    work();
    lose(*houses[2]);
    work(10s);
    ASSERT_EQ(tasks(spec.name).size(), 4u) << where(spec.name);
  }
  wire::JobView job(const std::string& name) { return described(name).job; }
  void lose(House& house) {
    town.kill(house);
    work(10s);  // its down_grace of 5 s is over
  }
  // With its log, and without the tasks that ran there.
  void comes_back(House& house) {
    ++house.started.life;
    house.started.members.found = false;
    house.started.members.record.cluster_id = {0xc1, 0x57e2};
    house.start();
    for (House* other : houses)
      if (other != &house) house.give(Gossiped{gossip::SeedsResolved{{other->address()}}});
  }
  // The task of the only job ends well, wherever it runs.
  void succeed(std::uint32_t index) {
    for (const auto& [id, attempt] : attempts)
      for (House* house : houses)
        if (id.task.index == index && house->runs() && tasks("array").at(id.task.text()).node == house->started.facts.name)
          return end(*house, id, 0);
  }
  std::size_t events(const std::string& type) {
    std::size_t n = 0;
    for (const auto& event : houses[0]->events()) n += event.type == type;
    return n;
  }
};

TEST_F(ShrinkTest, AGangGoesOnWithFewerOnceItWaitedForRoom) {
  submit(elastic("gang", 6, 3));
  work();
  ASSERT_EQ(job("gang").state, "Running");
  town.kill(*houses[2]);
  work(7s);
  EXPECT_EQ(job("gang").state, "Recovering") << "the host may be back soon";
  EXPECT_THAT(described("gang").waiting_for, HasSubstr("6 tasks of worker need 1 GPU each"));
  EXPECT_THAT(described("gang").waiting_for, Not(HasSubstr("can never run here"))) << "with four of them it soon does";
  EXPECT_THAT(described("gang", 1).waiting_for,
              AllOf(HasSubstr("6 tasks of worker need 1 GPU each"), HasSubstr("the coordinator n1 has the numbers of now")));
  EXPECT_EQ(events("job.shrunk"), 0u);
  work(10s);
  const wire::JobView view = job("gang");
  EXPECT_EQ(view.state, "Running") << where("gang");
  EXPECT_EQ(tasks("gang").size(), 4u) << "the most that there is room for";
  EXPECT_EQ(view.generation, 2u);
  EXPECT_EQ(view.restarts, 1u) << "the loss, and nothing for the rest";
  EXPECT_EQ(view.roles.at("worker").desired, 6u);
  EXPECT_EQ(view.roles.at("worker").running, 4u);
  for (const std::size_t at : {0u, 1u}) EXPECT_THAT(described("gang", at).job.reason, HasSubstr("runs with 4 of 6 worker"));
  EXPECT_EQ(events("job.shrunk"), 1u);
  // The host is back: a run is not ended for it at once, but the next generation has all of them.
  comes_back(*houses[2]);
  work(20s);
  EXPECT_EQ(tasks("gang").size(), 4u);
  EXPECT_EQ(job("gang").generation, 2u);
  act(wire::Action::restart, "gang");
  work();
  EXPECT_EQ(tasks("gang").size(), 6u) << where("gang");
  EXPECT_EQ(job("gang").state, "Running");
  EXPECT_THAT(job("gang").reason, Not(HasSubstr("runs with")));
  EXPECT_EQ(events("job.grown"), 1u);
}

TEST_F(ShrinkTest, OneThatRanWithFewerWaitsForNothingMoreToDoSoAgain) {
  submit(elastic("gang", 6, 3));
  work();
  lose(*houses[2]);
  work(10s);
  ASSERT_EQ(tasks("gang").size(), 4u);
  act(wire::Action::restart, "gang");
  work(2s);
  EXPECT_EQ(job("gang").state, "Running") << where("gang");
  EXPECT_EQ(tasks("gang").size(), 4u);
  EXPECT_EQ(job("gang").generation, 3u);
  EXPECT_EQ(events("job.shrunk"), 1u) << "it has the same size";
}

TEST_F(ShrinkTest, BelowTheLeastItWaits) {
  submit(elastic("gang", 6, 5));
  submit(elastic("whole", 6, 6));
  work();
  lose(*houses[2]);
  work(30s);
  EXPECT_EQ(job("gang").state, "Recovering");
  EXPECT_EQ(job("whole").state, "Pending");
  EXPECT_THAT(job("gang").reason, HasSubstr("can never run here"));
  comes_back(*houses[2]);
  work(10s);
  EXPECT_EQ(job("gang").state, "Running") << where("gang");
  EXPECT_EQ(tasks("gang").size(), 6u);
}

TEST_F(ShrinkTest, ANewJobBeginsWhole) {
  submit(elastic("large", 8, 2));
  work(30s);
  EXPECT_EQ(job("large").state, "Pending");
  EXPECT_TRUE(tasks("large").empty());
}

TEST_F(ShrinkTest, AHostThatIsBackInTimeIsNotMissed) {
  submit(elastic("gang", 6, 3));
  work();
  town.kill(*houses[2]);
  work(7s);
  ASSERT_EQ(job("gang").state, "Recovering");
  comes_back(*houses[2]);
  work(20s);
  EXPECT_EQ(job("gang").state, "Running");
  EXPECT_EQ(tasks("gang").size(), 6u);
  EXPECT_EQ(events("job.shrunk"), 0u);
}

// There is room for all while its checkpoint is looked for: no time that it has waited for them.
TEST_F(ShrinkTest, WhileACheckpointIsChosenItIsNotShortOfRoom) {
  job::JobSpec spec = elastic("gang", 6, 3);
  spec.checkpoint.emplace();
  spec.checkpoint->dir = "/ckpt";
  submit(spec);
  work(20s);  // nobody else answers what it has, which a job that begins is patient with
  ASSERT_EQ(job("gang").state, "Running") << described("gang").waiting_for;
  slow_disks = true;
  act(wire::Action::restart, "gang");
  work(20s);
  ASSERT_NE(job("gang").state, "Running");
  town.kill(*houses[2]);
  work(1s);
  std::optional<ScanCheckpoints> asked;
  for (const Effect& effect : houses[0]->effects)
    if (const auto* scan = std::get_if<ScanCheckpoints>(&effect)) asked = *scan;
  ASSERT_TRUE(asked);
  slow_disks = false;
  houses[0]->give(CheckpointsScanned{asked->job, asked->token, std::vector<transfer::CheckpointInfo>{}});
  work(1s);
  EXPECT_EQ(events("job.shrunk"), 0u) << "its host may be back soon: " << where("gang");
  comes_back(*houses[2]);
  work(20s);
  EXPECT_EQ(job("gang").state, "Running") << described("gang").waiting_for;
  EXPECT_EQ(tasks("gang").size(), 6u);
  EXPECT_EQ(events("job.shrunk"), 0u);
}

TEST_F(ShrinkTest, WhatAUserScalesToIsTriedFirst) {
  submit(elastic("gang", 4, 2));
  work();
  act(wire::Action::scale, "gang", 8);
  work(4s);
  EXPECT_EQ(job("gang").state, "Pending");
  work(8s);
  EXPECT_EQ(job("gang").state, "Running") << described("gang").waiting_for;
  EXPECT_EQ(tasks("gang").size(), 6u);
  EXPECT_THAT(job("gang").reason, HasSubstr("runs with 6 of 8 worker"));
  const std::uint64_t before = job("gang").generation;
  act(wire::Action::scale, "gang", 6);
  work();
  EXPECT_EQ(job("gang").generation, before) << "it has so many";
  EXPECT_EQ(job("gang").roles.at("worker").desired, 6u);
  EXPECT_THAT(job("gang").reason, Not(HasSubstr("runs with")));
}

// All of it never fits, as before it made room.
TEST_F(ShrinkTest, OneThatMadeRoomWithFewerGoesOnAsItWas) {
  submit(elastic("gang", 6, 3));
  work();
  lose(*houses[2]);
  work(10s);
  ASSERT_EQ(tasks("gang").size(), 4u);
  job::JobSpec urgent = ranks("urgent", 4, 1);
  urgent.policy.priority = 1;
  submit(urgent);
  work(10s);
  ASSERT_EQ(job("urgent").state, "Running");
  EXPECT_EQ(job("gang").state, "Pending");
  EXPECT_THAT(described("gang").waiting_for, AllOf(HasSubstr("preempted by urgent"), Not(HasSubstr("can never run here"))));
  act(wire::Action::cancel, "urgent");
  work();
  EXPECT_EQ(job("gang").state, "Running") << described("gang").waiting_for;
  EXPECT_EQ(tasks("gang").size(), 4u);
  EXPECT_THAT(job("gang").reason, HasSubstr("runs with 4 of 6 worker"));
}

TEST_F(ShrinkTest, ItGrowsOnceThereWasRoomForLongEnough) {
  job::JobSpec spec = elastic("gang", 6, 3);
  spec.policy.grow_after = 20s;
  ASSERT_NO_FATAL_FAILURE(shrink(spec));
  comes_back(*houses[2]);
  work(15s);
  lose(*houses[2]);  // nothing of the job is there
  comes_back(*houses[2]);
  work(15s);
  EXPECT_EQ(tasks("gang").size(), 4u) << "in all for long enough, but not at a stretch";
  EXPECT_EQ(job("gang").generation, 2u);
  work(15s);
  const wire::JobView view = job("gang");
  EXPECT_EQ(view.state, "Running");
  EXPECT_EQ(tasks("gang").size(), 6u) << where("gang");
  EXPECT_EQ(view.generation, 3u);
  EXPECT_EQ(view.restarts, 2u) << "the loss, and this; with a backoffLimit of 1";
  EXPECT_EQ(events("job.grown"), 1u);
  std::size_t said = 0;
  for (const auto& event : described("gang", 1).events)
    said += event.type == "job.restarting" && event.reason == "restarted by dtrain: there is room for all its tasks";
  EXPECT_EQ(said, 1u);
}

TEST_F(ShrinkTest, ItGrowsNeverIfItsFileSaysSo) {
  job::JobSpec spec = elastic("gang", 6, 3);
  spec.policy.grow_after = 0s;
  ASSERT_NO_FATAL_FAILURE(shrink(spec));
  comes_back(*houses[2]);
  work(5min);
  EXPECT_EQ(tasks("gang").size(), 4u);
  EXPECT_EQ(job("gang").generation, 2u);
}

// Its hosts come and go: it is not begun again each time that there is room for a while.
TEST_F(ShrinkTest, OneThatGrewLatelyWaitsTwiceAsLong) {
  job::JobSpec spec = elastic("gang", 6, 3);
  spec.policy.grow_after = 20s;
  spec.policy.backoff_limit.reset();
  ASSERT_NO_FATAL_FAILURE(shrink(spec));
  comes_back(*houses[2]);
  work(35s);
  ASSERT_EQ(tasks("gang").size(), 6u) << where("gang");
  for (const Duration before : {20s, 40s}) {
    lose(*houses[2]);
    work(10s);
    ASSERT_EQ(tasks("gang").size(), 4u) << where("gang");
    comes_back(*houses[2]);
    work(before + 15s);
    EXPECT_EQ(tasks("gang").size(), 4u) << "after a wait as long as the last one";
    work(before);
    EXPECT_EQ(tasks("gang").size(), 6u) << where("gang");
  }
}

// Others may have taken the room, and none of them gets it while the tasks end with their grace.
TEST_F(ShrinkTest, ItGrowsIntoRoomThatNobodyElseUses) {
  job::JobSpec spec = elastic("gang", 6, 3);
  spec.policy.grow_after = 10s;
  ASSERT_NO_FATAL_FAILURE(shrink(spec));
  submit(ranks("other", 1, 1));
  comes_back(*houses[2]);
  work(40s);
  EXPECT_EQ(job("other").state, "Running");
  EXPECT_EQ(tasks("gang").size(), 4u) << where("gang");
  act(wire::Action::cancel, "other");
  work(6s);
  stubborn = true;
  work(6s);
  ASSERT_EQ(job("gang").state, "Restarting");
  submit(ranks("next", 2, 1));
  work(5s);
  EXPECT_EQ(job("next").state, "Pending");
  stubborn = false;
  work(spec.policy.stop_grace_period);
  EXPECT_EQ(job("gang").state, "Running");
  EXPECT_EQ(tasks("gang").size(), 6u) << where("gang");
  EXPECT_EQ(job("next").state, "Pending");
}

// It moves with the tasks that it has, not with all that are wanted.
TEST_F(ShrinkTest, OneThatRunsWithFewerLeavesADrainedHost) {
  submit(elastic("gang", 6, 2));
  work();
  lose(*houses[2]);
  work(10s);
  ASSERT_EQ(tasks("gang").size(), 4u);
  submit(generic("filler", 1, 0));
  comes_back(*houses[2]);
  work(20s);
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], MessageType::drain, wire::DrainRequest{"n2", "", true, 0}));
  work(10s);
  EXPECT_FALSE(any_on("gang", "n2")) << where("gang");
  EXPECT_EQ(tasks("gang").size(), 4u);
  EXPECT_EQ(job("gang").state, "Running");
}

// Nobody notices when there are more: they come as soon as there is room.
TEST_F(ShrinkTest, TasksThatNobodyKnowsComeBack) {
  job::JobSpec spec = generic("free", 6, 1);
  spec.roles["worker"].min_replicas = 2;
  submit(spec);
  work();
  act(wire::Action::restart, "free");
  town.kill(*houses[2]);
  work(20s);
  EXPECT_EQ(job("free").state, "Running") << where("free");
  ASSERT_EQ(tasks("free").size(), 4u);
  const std::uint64_t before = job("free").generation;
  comes_back(*houses[2]);
  work(20s);
  EXPECT_EQ(tasks("free").size(), 6u) << where("free");
  EXPECT_EQ(job("free").generation, before);
  EXPECT_EQ(events("job.grown"), 1u);
}

// As an array of tasks that need not know of each other: two begin later, each when another one has ended.
TEST_F(ShrinkTest, WithoutAGangTasksBeginAsRoomBecomesFree) {
  job::JobSpec spec = generic("array", 8, 1);
  spec.policy.gang = false;
  submit(spec);
  work();
  EXPECT_EQ(tasks("array").size(), 6u) << where("array");
  EXPECT_EQ(job("array").state, "Running");
  EXPECT_EQ(job("array").roles.at("worker").desired, 8u);
  EXPECT_EQ(job("array").roles.at("worker").running, 6u);
  for (std::uint32_t i = 0; i < 8; ++i) {
    succeed(i);
    work();
    EXPECT_EQ(tasks("array").size(), std::min<std::size_t>(8, 7 + i)) << where("array");
    EXPECT_EQ(job("array").state, i < 7 ? "Running" : "Succeeded") << where("array");
  }
  EXPECT_EQ(job("array").generation, 1u);
  EXPECT_EQ(job("array").restarts, 0u);
}

// One that is lost with its host begins elsewhere alone, and the others wait for nothing.
TEST_F(ShrinkTest, WithoutAGangEachTaskThatIsLostWaitsForRoomAlone) {
  job::JobSpec spec = generic("array", 6, 1);
  spec.policy.gang = false;
  submit(spec);
  work();
  ASSERT_EQ(job("array").state, "Running");
  lose(*houses[2]);
  work(30s);
  EXPECT_EQ(job("array").roles.at("worker").running, 4u) << where("array");
  const auto lost = tasks("array");
  for (const auto& [name, view] : lost)
    if (view.state != "Running") {
      for (const auto& [other, there] : lost)
        if (there.state == "Running" && there.node == "n2") {
          succeed(static_cast<std::uint32_t>(std::stoul(other.substr(7))));
          work();
          EXPECT_EQ(tasks("array").at(name).state, "Running") << where("array");
          return;
        }
    }
  FAIL() << where("array");
}

}  // namespace
}  // namespace dtrain::node
