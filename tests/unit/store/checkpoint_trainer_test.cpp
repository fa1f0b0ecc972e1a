// Directories of Hugging Face's Trainer: what must be in one, and what a save leaves that was broken off.
#include <algorithm>

#include "agent/store/checkpoint_changes.h"
#include "common/job/names.h"
#include "common/transfer/file_tables.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

using store::verify;

class CheckpointTrainer : public CheckpointWorld {};

TEST_F(CheckpointTrainer, TrainerDirectoryNeedsItsModelAndAllFilesOfItsIndex) {
  const std::string path = huggingface_checkpoint(5);
  const std::string shard = read(path + "/model-00002-of-00002.safetensors");
  std::filesystem::remove(path + "/model-00002-of-00002.safetensors");
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_NE(scan()[0].defect.find("model-00002-of-00002.safetensors is missing"), std::string::npos) << scan()[0].defect;
  write(path + "/model-00002-of-00002.safetensors", shard.substr(0, shard.size() - 1));
  EXPECT_FALSE(scan()[0].complete);
  write(path + "/model-00002-of-00002.safetensors", shard);
  EXPECT_TRUE(scan()[0].complete) << scan()[0].defect;
  write(path + "/trainer_state.json", "{\"global_step\": 5, \"epoch\":");
  EXPECT_FALSE(scan()[0].complete);
  std::filesystem::remove(path + "/trainer_state.json");
  EXPECT_TRUE(scan().empty());

  const std::string other = dir_ + "/checkpoint-6";
  write(other + "/trainer_state.json", "{\"global_step\": 6}");
  EXPECT_NE(scan()[0].defect.find("no model"), std::string::npos);
  write(other + "/pytorch_model.bin", torch_file());
  EXPECT_TRUE(scan()[0].complete) << scan()[0].defect;
  write(other + "/rng_state.pth", "\x80\2}.");  // of an old torch.save: only its size is known
  EXPECT_TRUE(verify(scan()[0]));
  // With directories in it, it is another program's: nothing is known of it, and nothing done to it.
  std::filesystem::create_directory(other + "/global_step6");
  EXPECT_TRUE(scan().empty());
}

// The Trainer takes the directory with the largest number, and fails if trainer_state.json is not in it.
TEST_F(CheckpointTrainer, SaveOfTheTrainerThatWasBrokenOffIsMovedAway) {
  const auto broken = [this](const std::string& name) {
    for (const auto& info : scan())
      if (info.path == dir_ + "/" + name)
        return !info.complete && !info.is_share() && info.defect == "trainer_state.json is missing: it is not finished";
    return false;
  };
  write(dir_ + "/checkpoint-7/model.safetensors", safetensors_file({{"w", "w"}}));
  std::filesystem::create_directory(dir_ + "/checkpoint-8");
  EXPECT_TRUE(scan().empty()) << "another program may call its directories so";
  write(dir_ + "/checkpoint-7/training_args.bin", torch_file());
  EXPECT_TRUE(broken("checkpoint-7")) << "none but the Trainer writes that";
  EXPECT_TRUE(broken("checkpoint-8")) << "one of those beside it is the Trainer's";
  std::filesystem::remove(dir_ + "/checkpoint-7/training_args.bin");
  EXPECT_TRUE(scan().empty());
  spec_.format = *job::from_word<job::CheckpointFormat>("huggingface");
  EXPECT_TRUE(broken("checkpoint-7") && broken("checkpoint-8")) << "the job says whose they are";
  spec_.format = {};
  huggingface_checkpoint(5);
  EXPECT_TRUE(broken("checkpoint-7") && broken("checkpoint-8"));
  // Of another host's disk, and no directories of the Trainer.
  write(dir_ + "/checkpoint-9/rng_state_1.pth", torch_file());
  write(dir_ + "/checkpoint-10/optimizer_0/__1_0.distcp", torch_file());
  write(dir_ + "/checkpoint-11/optimizer_0/__0_0.distcp", torch_file());
  EXPECT_TRUE(broken("checkpoint-11")) << "the first rank's, whose host has no trainer_state.json";
  write(dir_ + "/step-12/model.safetensors", safetensors_file({{"w", "w"}}));
  write(dir_ + "/checkpoint-best/model.safetensors", safetensors_file({{"w", "w"}}));
  write(dir_ + "/checkpoint-6/optimizer_0/__0_0.distcp", torch_file());
  EXPECT_TRUE(broken("checkpoint-6") && broken("checkpoint-11") && broken("checkpoint-8"));
  for (const auto& info : scan()) EXPECT_TRUE(info.step != 9 && info.step < 12 && info.is_share() == (info.step == 10)) << info.path;
  EXPECT_EQ(scan().size(), 6u) << "each once";

  for (const auto& info : scan()) {
    if (info.complete || info.is_share()) continue;
    const auto moved = store::quarantine(info, dir_);
    ASSERT_TRUE(moved) << moved.error().text();
    EXPECT_EQ(*moved, dir_ + "/quarantined-1." + info.path.substr(dir_.size() + 1))
        << "the Trainer takes all names that begin with checkpoint-";
    EXPECT_FALSE(exists(info.path));
    EXPECT_EQ(store::quarantine(info, dir_).error().code, ErrorCode::not_found);
  }
  for (const auto& info : scan()) EXPECT_TRUE(info.step == 5 || info.step == 10) << info.path;
  // One that was finished meanwhile is left alone.
  std::filesystem::create_directory(dir_ + "/checkpoint-8");
  const auto found = scan();
  const auto unfinished = std::ranges::find(found, dir_ + "/checkpoint-8", &transfer::CheckpointInfo::path);
  ASSERT_NE(unfinished, found.end());
  huggingface_checkpoint(8);
  EXPECT_FALSE(store::quarantine(*unfinished, dir_));
  EXPECT_TRUE(exists(dir_ + "/checkpoint-8/trainer_state.json"));
}

// It may be another program's. Nothing is done to it, but people are told.
TEST_F(CheckpointTrainer, FirstSaveThatWasBrokenOffIsSaidWhereNothingElseShowsWhoseItIs) {
  EXPECT_EQ(store::unrecognised(spec_), "");
  write(dir_ + "/checkpoint-7/model.safetensors", "cut");
  write(dir_ + "/checkpoint-12/config.json", "{}");
  write(dir_ + "/step-15/model.safetensors", "cut");
  EXPECT_TRUE(scan().empty());
  const std::string said = store::unrecognised(spec_);
  EXPECT_TRUE(said.starts_with("checkpoint-12 in " + dir_ + " has no trainer_state.json: ")) << said;
  EXPECT_TRUE(said.ends_with("set checkpoint.format: huggingface, or remove it")) << said;
  spec_.format = *job::from_word<job::CheckpointFormat>("torch");
  EXPECT_EQ(store::unrecognised(spec_).find("trainer_state"), std::string::npos) << "the job says what it writes";
}

TEST_F(CheckpointTrainer, VerifyCallsWhatIsNotFinishedIncomplete) {
  write(dir_ + "/checkpoint-6/model.safetensors", safetensors_file({{"w", "w"}}));
  EXPECT_EQ(store::verify_path(dir_ + "/checkpoint-6").error().code, ErrorCode::not_found) << "nothing says whose it is";
  const std::string whole = huggingface_checkpoint(5);
  for (const auto& path : {dir_, dir_ + "/checkpoint-6"}) {
    const auto reports = store::verify_path(path);
    ASSERT_TRUE(reports) << reports.error().text();
    ASSERT_EQ(reports->size(), path == dir_ ? 2u : 1u);
    EXPECT_EQ(reports->front().info.path, dir_ + "/checkpoint-6");
    EXPECT_TRUE(reports->front().is_unfinished());
    EXPECT_FALSE(reports->back().is_unfinished() && path == dir_);
  }
  write(whole + "/trainer_state.json", "{");
  EXPECT_FALSE(store::verify_path(whole)->front().is_unfinished()) << "it is damaged";
}

// Good checkpoints of others that are called like the Trainer's, beside one of the Trainer's.
TEST_F(CheckpointTrainer, OthersAreLeftAlone) {
  const auto whole = [this] { return std::ranges::count_if(scan(), [](const auto& info) { return info.complete; }); };
  write(dir_ + "/checkpoint-1/pytorch_model_fsdp_0/__0_0.distcp", torch_file());  // save_state of accelerate
  write(dir_ + "/checkpoint-1/random_states_0.pkl", "\x80\2}.");
  std::filesystem::create_directory(dir_ + "/checkpoint-2");
  for (const auto& info : scan()) EXPECT_TRUE(info.is_share()) << info.path << ": nothing says that the Trainer wrote here";
  write_manifest_checkpoint(dir_ + "/checkpoint-3", 3, {{"training_args.bin", "arguments"}});
  std::filesystem::rename(distributed_checkpoint(4), dir_ + "/checkpoint-4");
  std::filesystem::rename(deepspeed_checkpoint(5), dir_ + "/checkpoint-5");
  EXPECT_EQ(whole(), 3);
  huggingface_checkpoint(6);
  EXPECT_EQ(whole(), 4);
}

TEST_F(CheckpointTrainer, LargeStateIsReadAndTooLargeOneIsLeftAlone) {
  const std::string path = huggingface_checkpoint(5), state = read(path + "/trainer_state.json");
  write(path + "/trainer_state.json", std::string(22 << 20, ' ') + state);
  EXPECT_TRUE(scan().at(0).complete) << scan().at(0).defect;
  write(path + "/trainer_state.json", std::string(transfer::kGatheredTextBytes, ' ') + state);
  EXPECT_TRUE(scan().empty()) << "nothing is known of it, and nothing done to it";
}

TEST_F(CheckpointTrainer, ZerosOfAPowerCutAreDamage) {
  for (const std::string file : {"optimizer_0/__1_0.distcp", "optimizer.pt"}) {
    const std::string path = trainer_with_fsdp(5);
    write(path + "/" + file, std::string(5000, '\0'));
    EXPECT_FALSE(scan().at(0).complete);
    EXPECT_NE(scan().at(0).defect.find(file + " begins with zeros"), std::string::npos) << scan().at(0).defect;
    std::filesystem::remove_all(path);
  }
}

}  // namespace
}  // namespace dtrain::test
