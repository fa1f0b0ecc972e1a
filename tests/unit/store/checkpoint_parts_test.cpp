// Checkpoints of which a host has so many ranks' files that it does not tell of them.
#include <gmock/gmock.h>

#include "common/job/names.h"
#include "common/transfer/shares.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

class CheckpointParts : public CheckpointWorld {};

TEST_F(CheckpointParts, TooManyOnOneHostAreSpokenOf) {
  const std::string shards = distributed_checkpoint(9);
  std::filesystem::remove(shards + "/.metadata");
  EXPECT_TRUE(scan().at(0).is_share());
  EXPECT_EQ(store::unrecognised(spec_).find("left alone"), std::string::npos);
  const std::string one = torch_file();
  for (std::size_t i = 0; i < transfer::kSharesBytes / 64; ++i) write(shards + "/__" + std::to_string(i) + "_0.distcp", one);
  EXPECT_TRUE(scan().empty());
  EXPECT_THAT(store::unrecognised(spec_),
              testing::AllOf(testing::HasSubstr("step_9 in " + dir_ + " is left alone on this host: it has too many files"),
                             testing::HasSubstr("one directory that all hosts see")));
  spec_.format = *job::from_word<job::CheckpointFormat>("torch");
  EXPECT_EQ(store::unrecognised(spec_).find("left alone"), std::string::npos) << "not looked for";
}

}  // namespace
}  // namespace dtrain::test
