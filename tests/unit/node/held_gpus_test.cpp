// What becomes of GPUs that a process outside of all tasks still holds after their task's end.
#include <gmock/gmock.h>

#include "common/node/gpu_reclaim.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;

class HeldGpus : public WorkingTown {
 protected:
  HeldGpus() {
    for (House* house : houses) {
      town.kill(*house);
      ++house->started.life;
      std::int32_t minor = 0;
      for (Gpu& gpu : house->started.facts.gpus) {
        gpu.vendor = "nvidia";
        gpu.minor = minor++;
      }
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
    answer_ = [this](House& house, const Effect& effect) {
      const auto* look = std::get_if<FindGpuHolders>(&effect);
      if (look == nullptr) return;
      ++looks_;
      house.give(GpuHoldersFound{look->token, holders_});
    };
  }
  // One task on n1 that has both GPUs; then its end.
  void run_and_end() {
    job::JobSpec spec = generic("first", 1, 2);
    spec.roles["worker"].node_selector = {{"house", "n1"}};
    spec.policy.backoff_limit = 0;
    submit(spec);
    work();
    ASSERT_THAT(where("first"), HasSubstr("@n1/Running"));
    end(*houses[0], {described("first").job.id, 1, {"worker", 0}}, 11);
    work(1s);
  }
  GpuHolder holder(std::uint32_t uid, Instant began = {}, bool in_task = false) {
    return {houses[0]->started.facts.gpus[1].pci, 4711, uid, "python3", began, in_task};
  }
  std::string state() { return described("first").job.state; }
  std::string unfit() { return houses[1]->nodes("n1").at(0).unfit; }

  Result<std::vector<GpuHolder>> holders_ = std::vector<GpuHolder>();
  int looks_ = 0;
};

TEST_F(HeldGpus, AreFreeAtOnceWhereNobodyHoldsThem) {
  run_and_end();
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
}

TEST_F(HeldGpus, TheEndIsNotToldWhileTheyMayStillBeLetGo) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  work(5s);
  EXPECT_GT(looks_, 5);
  EXPECT_EQ(houses[0]->status().gpus.free, 4u) << "nobody else's yet";
  holders_ = std::vector<GpuHolder>();
  work(1s);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
  EXPECT_EQ(unfit(), "");
}

TEST_F(HeldGpus, ThenTheHostIsGivenNothingAndEverybodyHearsWho) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  work(kReclaimPatience + 2s);
  EXPECT_EQ(state(), "Failed") << "the job goes on";
  EXPECT_THAT(unfit(), HasSubstr("process 4711 (python3 of somebody) holds GPU " + houses[0]->started.facts.gpus[1].pci +
                                 " after the end of first/worker-0"));
  EXPECT_EQ(houses[0]->log.count("gpu.held"), 1u);
  submit(generic("others", 6, 1));
  work();
  EXPECT_FALSE(any_on("others", "n1")) << where("others");
  holders_ = std::vector<GpuHolder>();
  work(kHeldLook + 1s);
  EXPECT_EQ(unfit(), "");
  EXPECT_EQ(houses[0]->log.count("gpu.released"), 1u);
  work();
  EXPECT_TRUE(any_on("others", "n1")) << where("others");
}

TEST_F(HeldGpus, ServicesAndOtherTasksAreNoCulprits) {
  holders_ = std::vector{holder(0), holder(999), holder(1000, {}, true)};
  run_and_end();
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
}

// That cannot be known: the job goes on, and nothing is held against the host.
TEST_F(HeldGpus, WhatCannotBeLookedAtIsBelievedToBeFree) {
  holders_ = fail(ErrorCode::io, "could not list the processes of this host");
  run_and_end();
  EXPECT_EQ(houses[0]->status().gpus.free, 4u);
  work(kReclaimPatience + 2s);
  EXPECT_EQ(state(), "Failed");
  EXPECT_EQ(unfit(), "");
  EXPECT_EQ(houses[0]->log.count("gpu.holders-unknown"), 1u);
}

// A health check that passes says nothing of GPUs.
TEST_F(HeldGpus, ReasonsOfBothKindsStandSideBySide) {
  holders_ = std::vector{holder(1000)};
  run_and_end();
  houses[0]->give(HostChecked{{1, 0, "", "no scratch\n"}});
  work(kReclaimPatience + 2s);
  EXPECT_THAT(unfit(), HasSubstr("health check ended with 1: no scratch; process 4711"));
  houses[0]->give(HostChecked{{0, 0, "", ""}});
  work(1s);
  EXPECT_THAT(unfit(), ::testing::StartsWith("process 4711"));
}

}  // namespace
}  // namespace dtrain::node
