// Jobs of higher priority that end others for their places: whom, at what cost, and who goes back when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;

class PreemptTest : public WorkingTown {
 protected:
  static job::JobSpec with(std::int32_t priority, job::JobSpec spec) {
    spec.policy.priority = priority;
    return spec;
  }
  void cancel(const std::string& job) {
    wire::ActionRequest request;
    request.action = wire::Action::cancel;
    request.job = job;
    ASSERT_TRUE(ask<wire::Empty>(*houses[0], MessageType::action, request, 1000));
  }
  Result<wire::Empty> drain(const std::string& node, bool on) {
    return ask<wire::Empty>(*houses[0], MessageType::drain, wire::DrainRequest{node, "", on, 0});
  }
  std::size_t preempted(std::size_t at = 0) {
    std::size_t count = 0;
    for (const auto& event : houses[at]->events()) count += event.type == "job.preempted";
    return count;
  }
  std::string state(const std::string& job) { return described(job).job.state; }
};

TEST_F(PreemptTest, ALowerJobEndsWithItsGraceAtNoCostAndComesAgain) {
  job::JobSpec low = with(0, generic("low", 6, 1));  // all GPUs
  low.policy.backoff_limit = 0;
  submit(low);
  work();
  ASSERT_EQ(state("low"), "Running");
  stubborn = true;
  submit(with(5, ranks("high", 2, 1)));
  work();
  EXPECT_THAT(where("low"), HasSubstr("Stopping"));
  EXPECT_EQ(signals, 6);
  EXPECT_EQ(kills, 0);
  for (const std::size_t at : {0u, 2u})
    EXPECT_EQ(described("low", at).waiting_for, "preempted by high; its tasks end with their stop grace");
  EXPECT_THAT(described("high").waiting_for, HasSubstr("waits for the end of low, which makes room for its higher priority"));
  EXPECT_THAT(described("high", 1).job.reason, HasSubstr("waits for the end of low"));
  submit(with(4, generic("thief", 2, 1)));
  work(40s);  // its grace is over: killed
  EXPECT_EQ(kills, 6);
  EXPECT_EQ(state("high"), "Running") << described("high").waiting_for;
  EXPECT_EQ(state("thief"), "Running") << "what the first does not need is free";
  EXPECT_EQ(state("low"), "Pending");
  EXPECT_THAT(described("low").waiting_for, HasSubstr("preempted by high; 6 tasks of worker need 1 GPU each"));
  EXPECT_EQ(preempted(), 1u);
  cancel("thief");
  work();
  EXPECT_EQ(state("low"), "Pending") << "it needs all";
  cancel("high");
  work(40s);
  EXPECT_EQ(state("low"), "Running") << described("low").waiting_for;
  EXPECT_EQ(described("low").job.generation, 2u);
  EXPECT_EQ(described("low").job.restarts, 0u);
  EXPECT_EQ(described("low").waiting_for, "");
  EXPECT_EQ(preempted(), 1u);
}

TEST_F(PreemptTest, AnEqualAndOneWhomItWouldNotHelpEndNobody) {
  submit(with(1, generic("one", 4, 1)));
  submit(with(0, generic("two", 2, 1)));
  work();
  submit(with(0, generic("equal", 2, 1)));
  work();
  submit(with(1, generic("large", 4, 1)));  // all of `two` would not suffice
  work(6s);
  EXPECT_EQ(signals, 0);
  EXPECT_EQ(preempted(), 0u);
  EXPECT_EQ(state("large"), "Pending");
}

// Found by the simulator, one host, seeds 4698, 7822 and 14565: the ledger went on saying what was no reason any more.
TEST_F(PreemptTest, WhyAJobWaitsIsSaidAgainAfterItsUserActed) {
  submit(with(0, generic("vast", 20, 1)));
  work();
  for (const std::size_t at : {0u, 1u}) EXPECT_THAT(described("vast", at).job.reason, HasSubstr("can never run here: "));
  wire::ActionRequest scale;
  scale.action = wire::Action::scale;
  scale.job = "vast";
  scale.role = "worker";
  scale.replicas = 21;
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], MessageType::action, scale, 1000));
  work();
  for (const std::size_t at : {0u, 1u}) EXPECT_THAT(described("vast", at).job.reason, HasSubstr("can never run here: 21 tasks"));
}

// R has half of the GPUs and is restarted, V has the other half; A, between them, needs all: R takes its half again.
TEST_F(PreemptTest, NobodyIsEndedForOneThatWaitsForAJobThatBeginsAgainBeforeIt) {
  submit(with(10, ranks("r", 3, 1)));
  submit(with(0, generic("v", 3, 1)));
  work();
  ASSERT_EQ(state("v"), "Running");
  stubborn = true;
  wire::ActionRequest restart;
  restart.action = wire::Action::restart;
  restart.job = "r";
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], MessageType::action, restart, 1000));
  submit(with(5, ranks("a", 6, 1)));
  work(40s);
  EXPECT_EQ(state("r"), "Running") << described("r").waiting_for;
  EXPECT_EQ(described("r").job.generation, 2u);
  EXPECT_EQ(state("v"), "Running") << described("v").waiting_for;
  EXPECT_EQ(preempted(), 0u);
}

TEST_F(PreemptTest, NoMoreThanNeededAlsoWhenAnotherCoordinatesMeanwhile) {
  submit(with(0, ranks("old", 4, 1)));
  work();
  submit(with(0, ranks("young", 2, 1)));
  work();
  ASSERT_EQ(state("young"), "Running");
  stubborn = true;
  submit(with(5, ranks("high", 2, 1)));
  work(1s);
  ASSERT_THAT(where("young"), HasSubstr("Stopping"));
  // A drained coordinator hands over; what was decided is in the log.
  ASSERT_TRUE(drain("n1", true));
  work(4s);
  ASSERT_NE(houses[1]->status().coordinator->node, "n1");
  ASSERT_TRUE(drain("n1", false));
  work(40s);
  EXPECT_EQ(state("high"), "Running") << described("high", 1).waiting_for << described("high", 2).waiting_for;
  EXPECT_EQ(state("old"), "Running");
  EXPECT_EQ(described("old").job.generation, 1u);
  EXPECT_EQ(state("young"), "Pending");
  EXPECT_EQ(preempted(), 1u);
}

TEST_F(PreemptTest, WhoWasPreemptedEndsNobodyItself) {
  for (const auto& [name, priority] : {std::pair("lowest", 0), std::pair("low", 1), std::pair("other", 2)}) {
    job::JobSpec spec = with(priority, ranks(name, 2, 1));
    spec.policy.placement = job::Placement::pack;
    submit(spec);
    work();
  }
  const std::string its_host = tasks("low").begin()->second.node;
  job::JobSpec high = with(2, ranks("high", 2, 1));
  high.roles["worker"].node_selector["house"] = its_host;  // it cannot have the lowest one's place
  submit(high);
  work(10s);
  EXPECT_EQ(state("high"), "Running") << described("high").waiting_for;
  EXPECT_EQ(state("low"), "Pending");
  EXPECT_EQ(state("lowest"), "Running");
  EXPECT_EQ(preempted(), 1u);
  cancel("high");
  work(6s);
  EXPECT_EQ(state("low"), "Running") << described("low").waiting_for;
  submit(with(1, ranks("another", 2, 1)));  // of its priority, and never ended
  work(6s);
  EXPECT_EQ(state("another"), "Running") << described("another").waiting_for;
  EXPECT_EQ(state("lowest"), "Pending");
}

TEST_F(PreemptTest, NobodyIsEndedForAJobThatHasNotFoundWhatItRestores) {
  submit(with(0, generic("low", 6, 1)));
  work();
  job::JobSpec high = with(1, ranks("high", 2, 1));
  high.checkpoint.emplace().dir = "/ckpt/high";
  slow_disks = true;
  submit(high);
  work(6s);
  EXPECT_EQ(signals, 0) << "its directory is being looked at";
  const ScanCheckpoints* scan = nullptr;
  for (const Effect& effect : houses[0]->effects)
    if (const auto* one = std::get_if<ScanCheckpoints>(&effect)) scan = one;
  ASSERT_NE(scan, nullptr);
  CheckpointsScanned scanned;
  scanned.job = scan->job;
  scanned.token = scan->token;
  scanned.found = std::vector<transfer::CheckpointInfo>{};
  slow_disks = false;
  houses[0]->give(scanned);
  work(25s);  // the other hosts' streams break: they are asked more than once
  EXPECT_EQ(signals, 6);
  EXPECT_EQ(state("high"), "Running") << described("high").waiting_for;
  EXPECT_EQ(described("high").job.generation, 1u);
}

TEST_F(PreemptTest, WhoMadeRoomIsNotEndedAgainWheneverTheOtherBeginsAnew) {
  submit(with(0, generic("low", 6, 1)));
  work();
  submit(with(1, ranks("high", 2, 1)));
  unstageable = described("high").job.id;
  work(90s);  // it is placed again and again, with pauses in which its place is free
  EXPECT_GT(described("high").job.generation, 3u);
  EXPECT_EQ(preempted(), 1u);
  EXPECT_EQ(described("low").job.generation, 1u);
  unstageable = 0;
  work(70s);
  EXPECT_EQ(state("high"), "Running");
  cancel("high");
  work(6s);
  EXPECT_EQ(state("low"), "Running") << described("low").waiting_for;
}

}  // namespace
}  // namespace dtrain::node
