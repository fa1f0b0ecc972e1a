// The formats of PyTorch users on a disk: found, verified, moved away, removed, copied, and what must never happen to other files.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "agent/store/checkpoint_changes.h"
#include "agent/store/checkpoint_copy.h"
#include "common/job/names.h"
#include "common/transfer/format.h"
#include "tests/unit/store/checkpoint_world.h"
#include "tests/unit/transfer/orbax_writer.h"

namespace dtrain::test {
namespace {

using store::verify;
using FileNames = std::vector<std::string>;

class CheckpointFormats : public CheckpointWorld {
 protected:
  // Writes a checkpoint of each and returns its path, by the word of the format.
  std::vector<std::pair<std::string, std::function<std::string(std::int64_t)>>> writers() {
    return {{"torch", [this](std::int64_t step) { return torch_checkpoint(step); }},
            {"safetensors", [this](std::int64_t step) { return safetensors_checkpoint(step); }},
            {"huggingface", [this](std::int64_t step) { return huggingface_checkpoint(step); }},
            {"huggingface", [this](std::int64_t step) { return trainer_with_fsdp(step); }},
            {"torch-distributed", [this](std::int64_t step) { return distributed_checkpoint(step); }},
            {"deepspeed", [this](std::int64_t step) { return deepspeed_checkpoint(step); }},
            {"deepspeed", [this](std::int64_t step) { return deepspeed_checkpoint(step, 3); }},
            {"megatron", [this](std::int64_t step) { return megatron_checkpoint(step); }},
            {"orbax",
             [this](std::int64_t step) { return write_files(std::to_string(step), orbax_checkpoint("weights " + std::to_string(step))); }}};
  }
  std::string write_files(const std::string& name, const FilesInMemory& checkpoint) {
    for (const auto& file : checkpoint.files) write(dir_ + "/" + name + "/" + file.first, file.second);
    return dir_ + "/" + name;
  }
  void empty_directory() {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directory(dir_);
  }
  FileNames names() const {
    FileNames all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_))
      all.push_back(entry.path().string().substr(dir_.size() + 1));
    std::ranges::sort(all);
    return all;
  }
  void only(const char* word) { spec_.format = *job::from_word<job::CheckpointFormat>(word); }
  bool found_and_good() {
    const auto found = store::scan(spec_);
    return found && std::ranges::any_of(*found, [](const auto& info) { return info.complete && verify(info); });
  }

  // To a host that lacks it: everything is read from here, then everything here is lost.
  Status copy(const transfer::CheckpointInfo& info, std::size_t flipped_byte = ~std::size_t{0}) {
    auto source = store::CheckpointSource::open(info, dir_);
    if (!source) return fail(source.error());
    auto bytes = source->read(0, source->size());
    if (!bytes) return fail(bytes.error());
    if (flipped_byte < bytes->size()) (*bytes)[flipped_byte] = static_cast<char>((*bytes)[flipped_byte] ^ 1);
    empty_directory();
    node::WriteCheckpoint first;
    first.writer = 1;
    first.info = info;
    first.files = source->files();
    first.dir = spec_.dir;
    auto target = store::CheckpointTarget::begin(first, {{"h1", 2}, {0, 0}});
    if (!target) return fail(target.error());
    Status result = (*target)->write(*bytes);
    while (result) {
      const auto done = (*target)->finish(20 << 10);
      if (!done) result = fail(done.error());
      else if (*done) return {};
    }
    (*target)->drop();
    return result;
  }
};

TEST_F(CheckpointFormats, AreFoundByAutoAndByTheirWords) {
  for (const auto& [word, write_one] : writers()) {
    write_one(100);
    const std::string path = write_one(300);
    for (const char* looked_for : {"auto", word.c_str()}) {
      only(looked_for);
      const auto found = scan();
      ASSERT_EQ(found.size(), 2u) << word;
      EXPECT_EQ(found[0].path, path);
      EXPECT_EQ(found[0].step, 300);
      EXPECT_EQ(transfer::format_of(found[0].format).name, word);
      EXPECT_TRUE(found[0].complete) << found[0].defect;
      EXPECT_NE(found[0].digest, found[1].digest) << word;
      const Status verified = verify(found[0]);
      EXPECT_TRUE(verified) << verified.error().text();
    }
    only("manifest");
    EXPECT_TRUE(scan().empty());
    empty_directory();
  }
}

TEST_F(CheckpointFormats, PathOfOneMayBeTheDirectory) {
  for (const auto& [word, write_one] : writers()) {
    spec_.dir = write_one(7);
    ASSERT_EQ(scan().size(), 1u) << word;
    EXPECT_EQ(scan()[0].path, spec_.dir);
    EXPECT_TRUE(verify(scan()[0]));
    const auto reports = store::verify_path(spec_.dir);
    ASSERT_TRUE(reports) << reports.error().text();
    EXPECT_TRUE(reports->front().status);
  }
  // Any name will do for a file that the user names.
  write(dir_ + "/last.pt", torch_file());
  spec_.dir = dir_ + "/last.pt";
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_TRUE(verify(scan()[0]));
}

TEST_F(CheckpointFormats, QuarantineAndRemovalTakeThemAndNothingElse) {
  for (const auto& [word, write_one] : writers()) {
    const std::string path = write_one(1);
    write(dir_ + "/train.pt", torch_file());
    const auto moved = store::quarantine(scan()[0], dir_);
    ASSERT_TRUE(moved) << moved.error().text();
    const bool before = word == "huggingface";
    EXPECT_EQ(*moved, before ? dir_ + "/quarantined-1." + path.substr(dir_.size() + 1) : path + ".quarantined-1");
    EXPECT_TRUE(exists(*moved));
    EXPECT_TRUE(scan().empty()) << word;
    write_one(1);
    const auto again = scan();
    ASSERT_EQ(again.size(), 1u);
    ASSERT_TRUE(store::remove(again[0], dir_));
    EXPECT_FALSE(exists(path)) << word;
    EXPECT_TRUE(exists(*moved));
    EXPECT_TRUE(exists(dir_ + "/train.pt"));
    empty_directory();
  }
}

TEST_F(CheckpointFormats, ReplacedOneIsNotCalledDamaged) {
  for (const auto& [word, write_one] : writers()) {
    const std::string path = write_one(1);
    const auto before = scan()[0];
    std::filesystem::remove_all(path);
    std::filesystem::rename(write_one(2), path);  // other bytes under this name
    const Status verified = verify(before);
    ASSERT_FALSE(verified) << word;
    EXPECT_EQ(verified.error().code, ErrorCode::unavailable) << verified.error().text();
    EXPECT_EQ(store::quarantine(before, dir_).error().code, ErrorCode::unavailable);
    EXPECT_EQ(store::remove(before, dir_).error().code, ErrorCode::unavailable);
    std::filesystem::remove_all(path);
    EXPECT_EQ(verify(before).error().code, ErrorCode::not_found);
    empty_directory();
  }
}

// Some scripts write one file over and over: until it is whole again it is not damaged, but not there.
TEST_F(CheckpointFormats, FileThatIsBeingWrittenAnewIsNotCalledDamaged) {
  const std::string path = torch_checkpoint(1);
  const auto before = scan()[0];
  const std::string other = torch_file("other weights of the model");
  for (const std::size_t written : {std::size_t{1}, other.size() / 2, other.size() - 1}) {
    std::filesystem::remove(path);
    write(path, other.substr(0, written));
    EXPECT_EQ(verify(before).error().code, ErrorCode::unavailable) << written;
    ASSERT_EQ(scan().size(), 1u);
    EXPECT_FALSE(scan()[0].complete);
  }
}

TEST_F(CheckpointFormats, OneThatRottedIsDamaged) {
  const std::string path = torch_checkpoint(1);
  const auto time = std::filesystem::last_write_time(path);
  const auto before = scan()[0];
  std::string bytes = read(path);
  bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 4);
  write(path, bytes);
  std::filesystem::last_write_time(path, time);
  EXPECT_EQ(verify(before).error().code, ErrorCode::damaged);
}

// ---- names

TEST_F(CheckpointFormats, AutoTakesOnlyWhatIsNamedAsACheckpoint) {
  for (const char* name : {"last.pt", "train_0001.pt", "samples_step_5.pt", "model.safetensors", "model-7.pt", "weights.bin"})
    write(dir_ + "/" + name, torch_file());
  const std::string numpy = write_zip({{"a.npy", "\x93NUMPY"}}, numpy_shape()).bytes, keras = write_zip({{"config.json", "{}"}}, {}).bytes;
  write(dir_ + "/ckpt-7.npz", numpy);
  write(dir_ + "/ckpt-7.keras", keras);
  write(dir_ + "/ckpt_8.pt", "\x80\2}.");                                // of an old torch.save
  write(dir_ + "/model_step_9.bin", write_zip({{"x", "y"}}, {}).bytes);  // a zip of something else
  std::filesystem::create_directory(dir_ + "/epoch=1-step=9.ckpt");      // Lightning with DeepSpeed
  std::filesystem::create_symlink(dir_ + "/last.pt", dir_ + "/ckpt_10.pt");
  EXPECT_TRUE(scan().empty());
  const std::string said = store::unrecognised(spec_);
  EXPECT_TRUE(said.starts_with("10 files such as ckpt-7.keras in ")) << said;
  EXPECT_TRUE(said.ends_with("if they are checkpoints, set checkpoint.format: keras")) << said;
  EXPECT_NE(store::verify_path(dir_).error().message.find(said), std::string::npos);

  only("torch");
  std::vector<std::int64_t> steps;
  for (const auto& info : scan()) {
    EXPECT_TRUE(info.complete) << info.path << ": " << info.defect;
    EXPECT_FALSE(transfer::may_be_removed(info)) << info.path << " could be the user's";
    steps.push_back(info.step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{7, 5, 1, 0, 0}));
  only("numpy");
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_TRUE(verify(scan()[0]));
  EXPECT_TRUE(transfer::may_be_removed(scan()[0]));
  only("keras");
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_TRUE(verify(scan()[0]));
}

TEST_F(CheckpointFormats, BarePickleIsNeitherDamagedNorACheckpoint) {
  const std::string path = dir_ + "/ckpt_8.pt";
  write(path, "\x80\2}.");
  for (const char* word : {"auto", "torch"}) {
    only(word);
    for (const std::string& dir : {dir_, path}) {
      spec_.dir = dir;
      EXPECT_TRUE(store::scan(spec_).value_or(std::vector<transfer::CheckpointInfo>{}).empty()) << dir;
    }
  }
  const auto verified = store::verify_path(path);
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().code, ErrorCode::refused);
  EXPECT_NE(verified.error().message.find("bare pickle"), std::string::npos) << verified.error().message;
}

TEST_F(CheckpointFormats, ManifestBesideTakesPrecedence) {
  const std::string path = huggingface_checkpoint(5);
  write(path + "/MANIFEST.json", manifest_of(6, {{"config.json", "{}"}}));
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_EQ(transfer::format_of(scan()[0].format).name, "manifest");
}

// ---- what belongs to the formats alone

TEST_F(CheckpointFormats, DistributedCheckpointNeedsAllFilesThatItNames) {
  const std::string path = distributed_checkpoint(5);
  const std::string shard = read(path + "/__0_0.distcp");
  for (const std::size_t size : {std::size_t{1}, shard.size() / 3, shard.size() - 1}) {
    write(path + "/__0_0.distcp", shard.substr(0, size));
    ASSERT_EQ(scan().size(), 1u);
    EXPECT_FALSE(scan()[0].complete) << size;
  }
  std::filesystem::remove(path + "/__0_0.distcp");
  EXPECT_TRUE(scan().at(0).is_share()) << "all of rank 0 may lie on another host's disk";
  EXPECT_NE(store::verify_path(path).error().message.find("__0_0.distcp is missing"), std::string::npos);
  write(path + "/__0_1.distcp", shard);
  EXPECT_NE(scan()[0].defect.find("__0_0.distcp is missing"), std::string::npos) << scan()[0].defect;
  std::filesystem::remove(path + "/__0_1.distcp");
  write(path + "/__0_0.distcp", shard);
  EXPECT_TRUE(verify(scan()[0]));
  std::filesystem::rename(path + "/.metadata", path + "/.metadata.tmp");
  EXPECT_TRUE(scan().at(0).is_share() && scan().at(0).shares.list.empty());
}

// ---- directories with the files of all ranks

TEST_F(CheckpointFormats, DirectoryWithoutAllRanksIsAShareAndOneWithACutFileIncomplete) {
  for (const auto& [word, path, file] : {std::tuple("deepspeed", deepspeed_checkpoint(5), "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
                                         std::tuple("megatron", megatron_checkpoint(5), "mp_rank_01_001/model_optim_rng.pt")}) {
    only(word);
    const std::string bytes = read(path + "/" + file);
    std::filesystem::remove(path + "/" + file);
    EXPECT_TRUE(scan().at(0).is_share()) << "the others may be on another host's disk";
    const auto verified = store::verify_path(path);
    ASSERT_FALSE(verified);
    EXPECT_NE(verified.error().message.find("rank"), std::string::npos) << verified.error().message;
    write(path + "/" + file, bytes.substr(0, bytes.size() / 2));
    ASSERT_EQ(scan().size(), 1u) << word;
    EXPECT_FALSE(scan()[0].complete);
    write(path + "/" + file, bytes);
    EXPECT_TRUE(scan()[0].complete) << scan()[0].defect;
  }
}

TEST_F(CheckpointFormats, TrainerWithDirectoriesNeedsAllRanks) {
  for (const bool deepspeed : {true, false}) {
    const std::string path = deepspeed ? trainer_with_deepspeed(5) : trainer_with_fsdp(5);
    const std::string file = deepspeed ? "global_step5/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt" : "optimizer_0/__1_0.distcp";
    const auto info = scan().at(0);
    EXPECT_EQ(transfer::format_of(info.format).name, "huggingface");
    EXPECT_TRUE(info.complete) << info.defect;
    EXPECT_TRUE(verify(info));
    const Status copied = copy(info);
    ASSERT_TRUE(copied) << copied.error().text();
    ASSERT_EQ(scan().size(), 1u);
    EXPECT_EQ(scan()[0].digest, info.digest);
    const std::string name = path + "/" + file, bytes = read(name);
    std::string flipped = bytes;
    const auto at = std::min(flipped.find("third of"), flipped.find("moments"));
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    write(name, flipped);
    EXPECT_EQ(store::verify(scan()[0]).error().code, ErrorCode::damaged);
    write(name, bytes.substr(0, 99));
    EXPECT_FALSE(scan()[0].complete || scan()[0].is_share());
    std::filesystem::remove(name);
    EXPECT_TRUE(scan().at(0).is_share()) << "it may be on another host's disk";
    write(name, bytes);
    std::filesystem::create_directory(path + "/runs");
    EXPECT_TRUE(scan().empty()) << "a directory that says nothing of its files";
    std::filesystem::remove(path + "/runs");
    ASSERT_TRUE(store::remove(scan()[0], dir_));
    EXPECT_FALSE(exists(path));
  }
}

TEST_F(CheckpointFormats, TrackerDecidesNothingAndIsKeptCorrect) {
  using Case = std::tuple<const char*, std::function<void(std::int64_t)>, const char*, const char*, const char*>;
  for (const auto& [word, write_one, tracker, older, newer] :
       {Case{"deepspeed", [this](std::int64_t step) { deepspeed_checkpoint(step); }, "latest", "global_step600", "global_step700"},
        Case{"megatron", [this](std::int64_t step) { megatron_checkpoint(step); }, "latest_checkpointed_iteration.txt", "600", "700"}}) {
    const std::string path = dir_ + "/" + tracker;
    write_one(600);
    write_one(700);
    EXPECT_EQ(read(path), newer);
    ASSERT_EQ(scan().size(), 2u) << word;
    EXPECT_EQ(store::verify_path(path)->size(), 2u);
    ASSERT_TRUE(store::quarantine(scan()[0], dir_));
    EXPECT_EQ(read(path), older) << "scripts follow it";
    ASSERT_TRUE(store::quarantine(scan()[0], dir_));
    EXPECT_FALSE(exists(path));
    EXPECT_TRUE(exists(path + ".quarantined-1"));
    // One that names what is not there, and one that nobody can read.
    write_one(600);
    for (const std::string& text : {std::string(newer), std::string("release\n"), std::string(5000, 'x')}) {
      write(path, text);
      ASSERT_EQ(scan().size(), 1u);
      EXPECT_EQ(scan()[0].step, 600);
      EXPECT_TRUE(verify(scan()[0]));
    }
    write(path, newer);
    const Status copied = copy(scan()[0]);
    ASSERT_TRUE(copied) << copied.error().text();
    EXPECT_EQ(read(path), older) << "the tracker names what was copied";
    EXPECT_EQ(scan().size(), 1u);
    empty_directory();
  }
}

TEST_F(CheckpointFormats, SharedFormatOfMegatronHasItsOtherFilesAndItsTracker) {
  const std::string path = distributed_checkpoint(5), called = dir_ + "/iter_0000005";
  std::filesystem::rename(path, called);
  write(called + "/common.pt", torch_file("arguments"));
  write(called + "/metadata.json", "{}");
  write(dir_ + "/latest_checkpointed_iteration.txt", "4");
  const auto info = scan()[0];
  ASSERT_TRUE(info.complete) << info.defect;
  ASSERT_TRUE(copy(info));
  EXPECT_TRUE(exists(called + "/common.pt") && exists(called + "/metadata.json"));
  EXPECT_FALSE(exists(dir_ + "/latest_checkpointed_iteration.txt")) << "there was none on this host";
  write(called + "/common.pt", torch_file("arguments").substr(0, 99));
  EXPECT_FALSE(scan()[0].complete);
}

// ---- only by their words

TEST_F(CheckpointFormats, FilesOfHdf5AndXgboostAreTakenByTheirWords) {
  const std::string h5 = "\x89HDF\r\n\x1a\n" + std::string(5, '\0') + "\x08\x08" + std::string(9, '\0') + le(0, 8) + le(~0ull, 8) +
                         le(106, 8) + le(~0ull, 8) + le(0, 8) + le(96, 8) + std::string(24, '\0') + "root bytes";
  write(dir_ + "/ckpt_7.h5", h5);
  write(dir_ + "/model_7.json", R"({"learner":{"model":[1,2,3]},"version":[1,7,4]})");
  write(dir_ + "/config.json", R"({"a": "configuration of something else"})");
  EXPECT_TRUE(scan().empty());
  for (const char* word : {"hdf5", "xgboost"}) {
    only(word);
    ASSERT_EQ(scan().size(), 1u) << word;
    const auto info = scan()[0];
    EXPECT_EQ(info.step, 7);
    EXPECT_TRUE(info.complete) << info.defect;
    EXPECT_TRUE(verify(info));
    const std::string bytes = read(info.path);
    write(info.path, bytes.substr(0, bytes.size() - 9));
    EXPECT_FALSE(found_and_good()) << word;
    write(info.path, bytes);
    ASSERT_TRUE(store::quarantine(scan()[0], dir_));
    EXPECT_TRUE(scan().empty());
  }
  EXPECT_TRUE(exists(dir_ + "/config.json"));
}

// ---- copies

TEST_F(CheckpointFormats, CopyIsTheSame) {
  for (const auto& [word, write_one] : writers()) {
    write_one(3);
    const auto info = scan()[0];
    const FileNames before = names();
    const Status copied = copy(info);
    ASSERT_TRUE(copied) << word << ": " << copied.error().text();
    EXPECT_EQ(names(), before);
    ASSERT_EQ(scan().size(), 1u) << word;
    EXPECT_EQ(scan()[0].digest, info.digest);
    EXPECT_TRUE(verify(scan()[0]));
    empty_directory();
  }
}

TEST_F(CheckpointFormats, CopyThatIsFlippedIsRefusedOrAsGood) {
  int refused = 0, harmless = 0;
  for (const auto& [word, write_one] : writers()) {
    write_one(3);
    const std::size_t size = store::CheckpointSource::open(scan()[0], dir_)->size();
    for (std::size_t at = 0; at < size; at += 7 + size / 300) {
      empty_directory();
      write_one(3);
      const Status copied = copy(scan()[0], at);
      ++(copied ? harmless : refused);
      if (!copied) {
        EXPECT_EQ(copied.error().code, ErrorCode::damaged) << word << " " << at << copied.error().text();
        EXPECT_TRUE(names().empty());
      } else {
        EXPECT_TRUE(found_and_good()) << word << " " << at;
      }
    }
    empty_directory();
  }
  EXPECT_GT(refused, harmless);
  RecordProperty("refused", refused);
  RecordProperty("harmless", harmless);
}

// ---- damage: every cut is found, in every file

TEST_F(CheckpointFormats, EveryCutIsFound) {
  for (const auto& [word, write_one] : writers()) {
    write_one(1);
    for (const std::string& name : names()) {
      const std::string path = dir_ + "/" + name;
      // Files whose content nobody knows, and trackers, which decide nothing.
      const bool unknown = name.ends_with("config.json") || name.ends_with("_sharding") || name.starts_with("latest");
      if (!std::filesystem::is_regular_file(path) || unknown) continue;
      const std::string good = read(path);
      const std::size_t step = name.find("rank") == name.npos ? 1 : 9;  // one rank's file is as another's
      for (std::size_t size = 0; size < good.size(); size += step) {
        // Two zips, and nothing that is read says that there was a second: docs/checkpoints.md.
        if (name.ends_with("__0_0.distcp") && size == torch_file("first").size()) continue;
        write(path, good.substr(0, size));
        EXPECT_FALSE(found_and_good()) << name << " cut to " << size << " of " << good.size();
      }
      write(path, good);
      EXPECT_TRUE(found_and_good()) << word;
    }
    empty_directory();
  }
}

TEST_F(CheckpointFormats, LargeMemberIsReadInSlices) {
  std::string weights(5 << 20, '\0');
  std::mt19937 random(5);
  std::ranges::generate(weights, [&] { return static_cast<char>(random()); });
  ZipShape packed = torch_shape();
  packed.packed = true;
  for (const ZipShape& shape : {torch_shape(), packed}) {
    write(dir_ + "/ckpt_1.pt", torch_file(weights, shape));
    auto verification = store::Verification::begin(scan()[0], dir_);
    ASSERT_TRUE(verification);
    int slices = 0;
    for (bool done = false; !done; ++slices) {
      const auto more = verification->advance(64 << 10);
      ASSERT_TRUE(more) << more.error().text();
      done = *more;
    }
    EXPECT_GT(slices, 40);
    std::string bytes = read(dir_ + "/ckpt_1.pt");
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write(dir_ + "/ckpt_1.pt", bytes);
    EXPECT_EQ(verify(scan()[0]).error().code, ErrorCode::damaged);
  }
}

}  // namespace
}  // namespace dtrain::test
