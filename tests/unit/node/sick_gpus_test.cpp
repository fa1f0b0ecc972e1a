// What a cluster makes of GPUs that fall sick.
#include <gmock/gmock.h>

#include <algorithm>

#include "common/node/gpu_health.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;

constexpr const char *kFirst = "0000:10:00.0", *kSecond = "0000:20:00.0";

GpuSample sample(const char* pci, std::int32_t celsius) {
  GpuSample s;
  s.pci = pci;
  s.celsius = celsius;
  s.slowdown = 90;
  return s;
}
void look(House& house, std::int32_t celsius, unsigned times) {
  for (unsigned i = 0; i < times; ++i) house.give(GpusSampled{{sample(kFirst, celsius), sample(kSecond, 50)}});
}

class SickGpus : public WorkingTown {
 protected:
  const wire::GpuView& gpu(House& of, std::size_t index, House& asked) {
    view_ = asked.nodes(of.started.facts.name).at(0);
    return view_.gpus.devices.at(index);
  }
  wire::NodeView view_;
};

TEST_F(SickGpus, AreTakenOutAndEverybodyHearsWhy) {
  houses[1]->give(GpuFaulted{{kSecond, 79, "GPU has fallen off the bus"}});
  work();
  for (House* house : houses) {
    EXPECT_FALSE(gpu(*houses[1], 1, *house).healthy);
    EXPECT_EQ(gpu(*houses[1], 1, *house).reason, "Xid 79: GPU has fallen off the bus");
    EXPECT_TRUE(gpu(*houses[1], 0, *house).healthy);
    EXPECT_EQ(house->status().gpus.free, 5u);
    EXPECT_EQ(house->status().gpus.total, 6u);
  }
  EXPECT_EQ(houses[1]->log.count("gpu.sick node=n2 reason=GPU 1 (0000:20:00.0): Xid 79: GPU has fallen off the bus"), 1u);
  submit(generic("pairs", 3, 2));
  work();
  EXPECT_THAT(described("pairs").waiting_for, HasSubstr("GPU"));  // two hosts with two, one with one
}

// An agent that was restarted while the others are away waits for the ledger; its GPUs do not.
TEST_F(SickGpus, AreKnownBeforeTheLedgerIs) {
  for (House* house : houses) house->kill();
  ++houses[0]->started.life;
  houses[0]->start();
  town.run_for(15s);
  houses[0]->give(GpuFaulted{{kSecond, 79, ""}});
  look(*houses[0], 95, kHotSamples);
  EXPECT_EQ(houses[0]->log.count("gpu.fault"), 1u);
  EXPECT_FALSE(gpu(*houses[0], 0, *houses[0]).healthy);
  EXPECT_EQ(gpu(*houses[0], 1, *houses[0]).reason, "Xid 79");
}

TEST_F(SickGpus, LeaveWhatRunsOnThemAlone) {
  submit(generic("all", 6, 1));
  work();
  for (std::uint32_t i = 0; i < 6; ++i) ASSERT_EQ(tasks("all")["worker-" + std::to_string(i)].state, "Running");
  const std::string before = where("all");
  houses[0]->give(GpuFaulted{{kFirst, 48, ""}});
  look(*houses[2], 95, kHotSamples);
  work();
  EXPECT_EQ(where("all"), before);
  EXPECT_EQ(kills + signals, 0);
  EXPECT_EQ(houses[0]->status().gpus.free, 0u);
}

TEST_F(SickGpus, AProgramsOwnFaultTakesNothingOut) {
  houses[0]->give(GpuFaulted{{kFirst, 31, "MMU Fault"}});
  houses[0]->give(GpuFaulted{{"0000:99:00.0", 79, "none of ours"}});
  work();
  EXPECT_EQ(houses[0]->status().gpus.free, 6u);
  EXPECT_EQ(houses[0]->log.count("gpu.fault gpu=0000:10:00.0 xid=31 text=MMU Fault"), 1u);
  EXPECT_EQ(houses[0]->log.count("gpu.sick"), 0u);
}

TEST_F(SickGpus, ATasksEndShortlyAfterIsExplained) {
  job::JobSpec spec = generic("pair", 1, 2);
  spec.policy.backoff_limit = 0;
  submit(spec);
  work();
  ASSERT_EQ(tasks("pair")["worker-0"].state, "Running");
  const std::string name = tasks("pair")["worker-0"].node;
  House& house = **std::ranges::find_if(houses, [&](House* h) { return h->started.facts.name == name; });
  house.give(GpuFaulted{{kSecond, 31, "MMU Fault"}});
  work(1s);
  end(house, attempts.begin()->first, 6);
  work();
  const auto fault = described("pair").first_fault;
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cause, "GPU 0000:20:00.0: Xid 31: MMU Fault (signal SIGABRT)");
}

TEST_F(SickGpus, AFaultOfLongAgoOrOfAnothersGpuExplainsNothing) {
  job::JobSpec spec = generic("six", 6, 1);
  spec.policy.backoff_limit = 0;
  submit(spec);
  work();
  const auto all = tasks("six");
  for (const auto& [name, view] : all) ASSERT_EQ(view.state, "Running");
  const wire::TaskView& task = all.at("worker-0");
  House& house = **std::ranges::find_if(houses, [&](House* h) { return h->started.facts.name == task.node; });
  const bool has_first = task.gpus == std::vector<std::string>{kFirst};
  house.give(GpuFaulted{{has_first ? kFirst : kSecond, 31, "too long ago"}});
  work(40s);
  house.give(GpuFaulted{{has_first ? kSecond : kFirst, 31, "of another"}});
  const auto id = std::ranges::find_if(attempts, [](const auto& entry) { return entry.first.task.index == 0; });
  end(house, id->first, 6);
  work();
  const auto fault = described("six").first_fault;
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->cause, "signal SIGABRT");
}

// A host by itself looks at nothing by the clock: what waits must be looked at when there is more.
class LoneHost : public SickGpus {
 protected:
  LoneHost() {
    alone_ = &lone_town_.add("n1");
    alone_->started.facts.task_address = "10.0.0.1";
    alone_->start();
    lone_town_.run_for(15s);
  }
  bool stages() const {
    return std::ranges::any_of(alone_->effects, [](const Effect& e) { return std::holds_alternative<Stage>(e); });
  }
  Town lone_town_;
  House* alone_ = nullptr;
};

TEST_F(LoneHost, WhatWasUnfitFromTheStartDoesNotGetWell) {
  alone_->kill();
  alone_->started.facts.gpus.at(0).healthy = false;
  alone_->started.facts.gpus.at(0).reason = "MIG is on";
  alone_->start();
  lone_town_.run_for(15s);
  look(*alone_, 95, kHotSamples);
  look(*alone_, 50, kCoolSamples);
  EXPECT_FALSE(gpu(*alone_, 0, *alone_).healthy);
  EXPECT_EQ(gpu(*alone_, 0, *alone_).reason, "MIG is on");
  EXPECT_TRUE(gpu(*alone_, 1, *alone_).healthy);
}

TEST_F(LoneHost, AJobThatWaitsBeginsWhenTheGpuIsWellAgain) {
  look(*alone_, 95, kHotSamples);
  wire::SubmitRequest request;
  request.spec = wire::encode(generic("pair", 1, 2));
  ASSERT_TRUE(alone_->ask<wire::SubmitReply>(wire::MessageType::submit, request, 1000));
  lone_town_.run_for(10s);
  EXPECT_FALSE(stages());
  look(*alone_, 50, kCoolSamples);
  lone_town_.run_for(1s);
  EXPECT_TRUE(stages());
  EXPECT_EQ(alone_->log.count("gpu.well node=n1 reason=GPU 0 (0000:10:00.0)"), 1u);
}

}  // namespace
}  // namespace dtrain::node
