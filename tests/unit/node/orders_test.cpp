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
    if (index < 2) gpu.uuid = "GPU-" + std::to_string(index);
    gpu.pretended = index == 3;
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

TEST(Orders, ATaskMayOpenItsOwnGpusAlone) {
  EXPECT_THAT(order_with({1, 0}).gpu_ids, ElementsAre("GPU-1", "GPU-0"));
  EXPECT_THAT(order_with({1, 0}).gpu_pci, Optional(ElementsAre("0000:01:00.0", "0000:00:00.0")));
  EXPECT_THAT(order_with({}).gpu_pci, Optional(IsEmpty())) << "none";
}

// A number counts all GPUs of the host.
TEST(Orders, OneThatIsToldANumberMaySeeAll) {
  EXPECT_THAT(order_with({2, 0}).gpu_ids, ElementsAre("2", "GPU-0"));
  EXPECT_EQ(order_with({2, 0}).gpu_pci, std::nullopt);
  EXPECT_EQ(order_with({0, 2}).gpu_pci, std::nullopt);
  EXPECT_EQ(order_with({7}).gpu_pci, std::nullopt) << "gone since it was placed";
}

TEST(Orders, APretendedOneHasNothingToOpen) { EXPECT_THAT(order_with({3, 0}).gpu_pci, Optional(ElementsAre("0000:00:00.0"))); }

}  // namespace
}  // namespace dtrain::node
