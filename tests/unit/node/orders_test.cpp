// Which GPUs a task is told of, and which it may open.
#include "common/node/orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::node {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

// Cards 0 and 1 have names, 2 has none, 3 is pretended.
NodeFacts host() {
  NodeFacts facts;
  for (std::uint32_t index = 0; index < 4; ++index) {
    Gpu gpu;
    gpu.index = index;
    gpu.pci = "0000:0" + std::to_string(index) + ":00.0";
    gpu.vendor = "nvidia";
    gpu.minor = static_cast<std::int32_t>(index + 4);
    if (index < 2) gpu.uuid = "GPU-" + std::to_string(index);
    gpu.pretended = index == 3;
    gpu.numa = index == 2 ? -1 : static_cast<std::int32_t>(index % 2);
    facts.gpus.push_back(gpu);
  }
  return facts;
}

task::TaskOrder order_with(const std::vector<std::uint32_t>& gpus) {
  cluster::JobRecord job;
  job.spec.roles["worker"].replicas = 1;
  const NodeFacts facts = host();
  cluster::TaskRecord& record = job.tasks[TaskId{"worker", 0}];
  record.place.node = facts.id;
  record.place.gpus = gpus;
  const auto orders = make_orders(job, facts, make_context(job), {}, "");
  EXPECT_EQ(orders.tasks.size(), 1u);
  return orders.tasks.empty() ? task::TaskOrder{} : orders.tasks[0];
}

const task::OwnGpu kGpu0{"0000:00:00.0", "nvidia", 4}, kGpu1{"0000:01:00.0", "nvidia", 5};

TEST(Orders, ATaskMayOpenItsOwnGpusAlone) {
  EXPECT_THAT(order_with({1, 0}).gpu_ids.cuda, ElementsAre("GPU-1", "GPU-0"));
  EXPECT_THAT(order_with({1, 0}).own_gpus, Optional(ElementsAre(kGpu1, kGpu0)));
  EXPECT_THAT(order_with({}).own_gpus, Optional(IsEmpty())) << "none";
}

// A number counts all GPUs of the host.
TEST(Orders, OneThatIsToldANumberMaySeeAll) {
  EXPECT_THAT(order_with({2, 0}).gpu_ids.cuda, ElementsAre("2", "GPU-0"));
  EXPECT_EQ(order_with({2, 0}).own_gpus, std::nullopt);
  EXPECT_EQ(order_with({0, 2}).own_gpus, std::nullopt);
  EXPECT_EQ(order_with({7}).own_gpus, std::nullopt) << "gone since it was placed";
}

// Its CPUs are to be near them.
TEST(Orders, TheNodesOfItsGpusAreToldAsFarAsTheyAreKnown) {
  EXPECT_THAT(order_with({3, 0, 1}).gpu_nodes, ElementsAre(1, 0, 1)) << "also of a pretended one";
  EXPECT_THAT(order_with({2}).gpu_nodes, IsEmpty());
  EXPECT_THAT(order_with({}).gpu_nodes, IsEmpty());
}

TEST(Orders, APretendedOneHasNothingToOpen) { EXPECT_THAT(order_with({3, 0}).own_gpus, Optional(ElementsAre(kGpu0))); }

// cleanPodPolicy None, once the job has ended: who is dead by then keeps no room (simulator, three hosts, seed 16190).
TEST(Orders, WhatWasLeftRunningIsWantedUntilItDies) {
  const auto desire_of = [](job::TaskState state, bool left_running) {
    cluster::JobRecord job;
    job.spec.roles["worker"].replicas = 1;
    job.state = cluster::JobState::failed;
    job.leave_running = true;
    cluster::TaskRecord& record = job.tasks[TaskId{"worker", 0}];
    record.state = state;
    record.left_running = left_running;
    const NodeFacts facts = host();
    record.place.node = facts.id;
    return make_orders(job, facts, make_context(job), {}, "").tasks.at(0).desire;
  };
  using job::TaskState;
  EXPECT_EQ(desire_of(TaskState::running, true), task::Desire::run);
  EXPECT_EQ(desire_of(TaskState::starting, true), task::Desire::run);
  EXPECT_EQ(desire_of(TaskState::frozen, true), task::Desire::run) << "for want of a lease: it lives";
  EXPECT_NE(desire_of(TaskState::backoff, true), task::Desire::run);
  EXPECT_NE(desire_of(TaskState::running, false), task::Desire::run);
}

}  // namespace
}  // namespace dtrain::node
