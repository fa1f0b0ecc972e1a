// Hosts that are drained: what leaves them, when, and what stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/base/rng.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;

class DrainTest : public WorkingTown {
 protected:
  Result<wire::Empty> drain(const std::string& node, bool on = true, Duration deadline = {}, std::size_t at = 0) {
    wire::DrainRequest request{node, "disk", on, std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count()};
    return ask<wire::Empty>(*houses[at], MessageType::drain, request);
  }
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

// A place that is held for one that moves is one of the job's, to whoever looks for a place for another of its tasks.
TEST_F(DrainTest, WhoIsToBeAloneOnItsHostIsSoWhateverIsDrained) {
  job::JobSpec spec = generic("j", 2);
  spec.roles["worker"].anti_affinity = "host";
  submit(spec);
  work();
  Rng rng(7);
  for (int round = 0; round < 60; ++round) {
    const std::string host = "n" + std::to_string(1 + rng.below(3));
    ASSERT_TRUE(drain(host, rng.below(2) == 0));
    work(std::chrono::milliseconds(rng.below(1500)));
    std::set<std::string> hosts;
    for (const auto& [name, task] : tasks("j"))
      EXPECT_TRUE(task.pid == 0 || hosts.insert(task.node).second) << "round " << round << ": " << where("j");
  }
  for (const char* host : {"n1", "n2", "n3"}) ASSERT_TRUE(drain(host, false));
  work(10s);
  EXPECT_EQ(described("j").job.state, "Running") << where("j");
}

TEST_F(DrainTest, AGangWithoutRoomStaysAndMovesWhenRoomComesAndNobodyTakesIt) {
  submit(ranks("gang", 4, 1));  // of 6 GPUs
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
