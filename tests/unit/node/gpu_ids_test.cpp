// By which names tasks find their GPUs, on hosts of one maker and of both.
#include "common/node/gpu_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dtrain::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Gpu gpu(std::uint32_t index, const std::string& vendor, const std::string& uuid, std::int32_t ordinal = -1) {
  Gpu g;
  g.index = index;
  g.vendor = vendor;
  g.uuid = uuid;
  g.ordinal = ordinal;
  return g;
}

// As on a machine with cards of both makers, one of each without a UUID yet.
const std::vector<Gpu> kMixed{gpu(0, "nvidia", "GPU-n0", 0), gpu(1, "amd", "GPU-a1", 0), gpu(2, "nvidia", "", 1), gpu(5, "amd", "", 1)};

TEST(GpuIds, EachMakerHearsOfItsOwnOnly) {
  const job::GpuIds both = gpu_ids(kMixed, {0, 1});
  EXPECT_THAT(both.cuda, ElementsAre("GPU-n0"));
  EXPECT_THAT(both.rocr, ElementsAre("GPU-a1"));
  EXPECT_FALSE(both.cuda_by_number);
  EXPECT_THAT(gpu_ids(kMixed, {1}).cuda, IsEmpty());
  EXPECT_THAT(gpu_ids(kMixed, {0}).rocr, IsEmpty());
  EXPECT_THAT(gpu_ids(kMixed, {}).cuda, IsEmpty());
}

TEST(GpuIds, WithoutAUuidItIsTheNumberThatTheMakersRuntimeCounts) {
  const job::GpuIds ids = gpu_ids(kMixed, {0, 2, 5});
  EXPECT_THAT(ids.cuda, ElementsAre("GPU-n0", "1"));
  EXPECT_TRUE(ids.cuda_by_number);
  EXPECT_THAT(ids.rocr, ElementsAre("1"));
  EXPECT_FALSE(gpu_ids(kMixed, {5}).cuda_by_number);
  EXPECT_THAT(gpu_ids({gpu(3, "nvidia", "")}, {3}).cuda, ElementsAre("3"));  // nothing better is known
}

TEST(GpuIds, PretendedOnesAreOfBoth) {
  const job::GpuIds ids = gpu_ids({gpu(0, "pretended", "pretended-0")}, {0});
  EXPECT_THAT(ids.cuda, ElementsAre("pretended-0"));
  EXPECT_THAT(ids.rocr, ElementsAre("pretended-0"));
}

}  // namespace
}  // namespace dtrain::node
