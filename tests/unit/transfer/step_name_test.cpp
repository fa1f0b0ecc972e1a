#include "common/transfer/step_name.h"

#include <gtest/gtest.h>

#include <string>

namespace dtrain::transfer {
namespace {

TEST(StepName, IsWhatScriptsWrite) {
  const std::pair<const char*, std::int64_t> said[] = {{"ckpt_000120", 120},
                                                       {"epoch=3-step=1200", 1200},
                                                       {"epoch=3-step=1200-v1", 1200},
                                                       {"checkpoint-1200", 1200},
                                                       {"model_epoch_7", 7},
                                                       {"global_step200", 200},
                                                       {"Step.15", 15},
                                                       {"epoch=10-val_loss=0.32", 10},
                                                       {"iter_0000100", 100},
                                                       {"model_step_5_ema", 5},
                                                       {"model.ckpt-9", 9},
                                                       {"step_0", 0},
                                                       {"checkpoint_3_900", 3},
                                                       {"ckpt-step-2-of-9", 2},
                                                       {"epoch2_iter300", 300}};
  for (const auto& [name, step] : said) EXPECT_EQ(step_said_by(name), step) << name;
  for (const char* none : {"", "last", "best-model", "train_0001", "shard-00012", "resnet50", "misstep3", "step", "steps_3", "step-x3",
                           "ckpt-99999999999999999999999", "epoch"})
    EXPECT_EQ(step_said_by(none), std::nullopt) << none;
}

TEST(StepName, NumberAtTheEndIsOneIfNothingElseIs) {
  EXPECT_EQ(step_of_name("model-1200"), 1200);
  EXPECT_EQ(step_of_name("model_12"), 12);
  EXPECT_EQ(step_of_name("a-7_ckpt-3"), 3);
  for (const char* none : {"", "last", "resnet50", "12", "model-", "model-x", "model-99999999999999999999999"})
    EXPECT_EQ(step_of_name(none), 0) << none;
}

TEST(StepName, DataIsNotNamedAsACheckpoint) {
  for (const char* yes :
       {"ckpt_12.pt", "step-12.pt", "model_epoch_3.pt", "epoch=1-step=2.ckpt", "unet_step_5.ckpt", "Checkpoint-4.safetensors"})
    EXPECT_TRUE(named_as_checkpoint(yes)) << yes;
  for (const char* no : {"samples_step_12.pt", "train_0001.pt", "model-3.pt", "model.pt", "eval_epoch_2.bin", "last.ckpt"})
    EXPECT_FALSE(named_as_checkpoint(no)) << no;
}

}  // namespace
}  // namespace dtrain::transfer
