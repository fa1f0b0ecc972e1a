// Checkpoints of which a host has only some ranks' files.
#include <gmock/gmock.h>

#include "common/job/names.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

class CheckpointParts : public CheckpointWorld {};

TEST_F(CheckpointParts, OnSeveralDisksAreSpokenOf) {
  const std::string deepspeed = deepspeed_checkpoint(5);
  EXPECT_EQ(store::unrecognised(spec_).find("left alone"), std::string::npos) << "it is whole";
  std::filesystem::remove(deepspeed + "/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_THAT(store::unrecognised(spec_),
              testing::AllOf(testing::HasSubstr("global_step5 in " + dir_ + " is left alone on this host ("), testing::HasSubstr("rank"),
                             testing::HasSubstr("one directory that all hosts see")));
  // The host of rank 1 has neither the first rank's files nor what lists all.
  const std::string megatron = megatron_checkpoint(7);
  std::filesystem::remove_all(megatron + "/mp_rank_00_000");
  EXPECT_THAT(store::unrecognised(spec_), testing::HasSubstr("iter_0000007 in " + dir_)) << "the newest";
  const std::string shards = dir_ + "/step_9";
  std::filesystem::create_directory(shards);
  write(shards + "/__1_0.distcp", torch_file());
  EXPECT_THAT(store::unrecognised(spec_), testing::HasSubstr("step_9 in " + dir_ + " is left alone on this host (.metadata is missing)"));
  std::filesystem::rename(shards + "/__1_0.distcp", shards + "/model.pt");
  EXPECT_THAT(store::unrecognised(spec_), testing::HasSubstr("iter_0000007")) << "that is no rank's file";
  spec_.format = *job::from_word<job::CheckpointFormat>("torch");
  EXPECT_EQ(store::unrecognised(spec_).find("left alone"), std::string::npos) << "not looked for";
}

}  // namespace
}  // namespace dtrain::test
