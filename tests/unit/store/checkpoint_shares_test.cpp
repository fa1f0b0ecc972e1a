// Checkpoints whose ranks wrote to their own hosts' disks, on those disks: found, verified, copied to one host, and whole there.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "agent/store/checkpoint_changes.h"
#include "agent/store/checkpoint_copy.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

using store::CheckpointSource;
using store::CheckpointTarget;

class CheckpointShares : public CheckpointWorld {
 protected:
  struct Writer {
    const char* word;
    std::function<std::string(std::int64_t)> write;
    std::vector<std::string> second;  // paths of files of the second host begin so; all others are the first's
  };
  std::vector<Writer> writers() {
    return {
        {"torch-distributed", [this](std::int64_t step) { return distributed_checkpoint(step); }, {"__1_"}},
        {"deepspeed", [this](std::int64_t step) { return deepspeed_checkpoint(step); }, {"bf16_zero_pp_rank_1"}},
        {"deepspeed", [this](std::int64_t step) { return deepspeed_checkpoint(step, 3); }, {"zero_pp_rank_1"}},
        {"megatron", [this](std::int64_t step) { return megatron_checkpoint(step); }, {"mp_rank_01"}},
        {"huggingface", [this](std::int64_t step) { return trainer_with_deepspeed(step); }, {"global_step5/bf16_zero_pp_rank_1"}},
        {"huggingface", [this](std::int64_t step) { return trainer_with_fsdp(step); }, {"optimizer_0/__1_", "pytorch_model_fsdp_0/__1_"}}};
  }
  std::string other_host() const { return root_ + "/second"; }
  // Moves the second host's files to its disk. Returns where the checkpoint is on each.
  std::pair<std::string, std::string> split(const Writer& writer, std::int64_t step) {
    const std::string path = writer.write(step), name = path.substr(dir_.size() + 1), there = other_host() + "/" + name;
    for (const std::string& second : writer.second) {
      const auto slash = second.find('/');
      const std::string inner = slash == second.npos ? "" : "/" + second.substr(0, slash), begins = second.substr(slash + 1);
      std::filesystem::create_directories(there + inner);
      for (const auto& entry : std::filesystem::directory_iterator(path + inner))
        if (const std::string file = entry.path().filename(); file.starts_with(begins))
          std::filesystem::rename(entry.path(), there + inner + "/" + file);
    }
    return {path, there};
  }
  std::vector<transfer::CheckpointInfo> scan_second() {
    job::CheckpointSpec spec = spec_;
    spec.dir = other_host();
    auto found = store::scan(spec);
    EXPECT_TRUE(found);
    return found.value_or(std::vector<transfer::CheckpointInfo>{});
  }
  // To the first host, as it comes from the second, whose path is another here.
  Status fetch(const transfer::CheckpointInfo& share, bool flipped = false) {
    auto source = CheckpointSource::open(share, dir_);
    if (!source) return fail(source.error());
    auto bytes = source->read(0, source->size());
    if (!bytes) return fail(bytes.error());
    if (flipped) {
      const auto at = std::min(bytes->find("third of"), bytes->find("moments"));
      EXPECT_LT(at, bytes->size());
      (*bytes)[at] = static_cast<char>((*bytes)[at] ^ 1);
    }
    node::WriteCheckpoint first;
    first.writer = 1;
    first.info = share;
    first.info.path = dir_ + share.path.substr(other_host().size());
    first.files = source->files();
    first.dir = spec_.dir;
    auto target = CheckpointTarget::begin(first, {{"h1", 2}, {0, 0}});
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
  void empty_disks() {
    for (const std::string& disk : {dir_, other_host()}) {
      std::filesystem::remove_all(disk);
      std::filesystem::create_directory(disk);
    }
  }
};

TEST_F(CheckpointShares, AreFoundVerifiedAndPutTogether) {
  for (const Writer& writer : writers()) {
    const std::string before = writer.write(5);
    const auto whole = scan();
    ASSERT_EQ(whole.size(), 1u) << writer.word;
    ASSERT_TRUE(whole[0].complete) << writer.word;
    std::filesystem::remove_all(before);
    const auto [here, there] = split(writer, 5);
    const auto first = scan(), second = scan_second();
    ASSERT_EQ(first.size(), 1u) << writer.word;
    ASSERT_EQ(second.size(), 1u) << writer.word;
    for (const auto& share : {first[0], second[0]}) {
      EXPECT_TRUE(share.is_share() && !share.complete && share.step == 5) << writer.word;
      EXPECT_NE(share.defect, "") << writer.word;
      EXPECT_TRUE(store::verify(share)) << writer.word;
    }
    EXPECT_FALSE(first[0].shares.list.empty()) << writer.word;
    EXPECT_TRUE(second[0].shares.list.empty() || writer.word == std::string("megatron")) << writer.word;
    EXPECT_EQ(store::verify_path(here).error().code, ErrorCode::refused) << "people are told what is missing";
    for (const std::string& above : {dir_, other_host()}) {
      const auto partial = store::verify_path(above);
      ASSERT_FALSE(partial) << writer.word;
      EXPECT_EQ(partial.error().code, ErrorCode::refused);
      EXPECT_NE(partial.error().message.find("this host has the files of only some of its ranks"), std::string::npos) << writer.word;
    }
    const Status fetched = fetch(second[0]);
    ASSERT_TRUE(fetched) << writer.word << ": " << fetched.error().text();
    const auto together = scan();
    ASSERT_EQ(together.size(), 1u);
    EXPECT_TRUE(together[0].complete) << writer.word << ": " << together[0].defect;
    EXPECT_EQ(together[0].digest, whole[0].digest) << writer.word << ": as if one host had written it";
    EXPECT_TRUE(store::verify(together[0])) << writer.word;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) EXPECT_FALSE(entry.path().string().ends_with(".tmp"));
    empty_disks();
  }
}

TEST_F(CheckpointShares, WhatComesDamagedChangesNothing) {
  for (const Writer& writer : writers()) {
    split(writer, 5);
    const auto before = scan();
    auto share = scan_second().at(0);
    const Status flipped = fetch(share, true);
    ASSERT_FALSE(flipped) << writer.word;
    EXPECT_EQ(flipped.error().code, ErrorCode::damaged) << flipped.error().text();
    const auto after = scan();
    ASSERT_EQ(after.size(), 1u);
    EXPECT_EQ(after[0].digest, before.at(0).digest) << writer.word;
    share.digest = "of another";
    EXPECT_EQ(fetch(share).error().code, ErrorCode::not_found) << "it changed on its host";
    empty_disks();
  }
}

// For checkpoint.keep: each host removes what it has, and nothing that came since.
TEST_F(CheckpointShares, AreRemovedOnTheirHosts) {
  for (const Writer& writer : writers()) {
    const auto [here, there] = split(writer, 5);
    const auto first = scan().at(0), second = scan_second().at(0);
    ASSERT_TRUE(store::remove(second, other_host())) << writer.word;
    EXPECT_FALSE(std::filesystem::exists(there)) << writer.word;
    ASSERT_EQ(scan().size(), 1u) << writer.word;
    if (writer.word != std::string("huggingface")) write(here + "/notes.txt", "of the user");  // there all files belong to it
    ASSERT_TRUE(store::remove(first, dir_)) << writer.word;
    EXPECT_TRUE(scan().empty()) << writer.word;
    std::error_code removed;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(here, removed))
      EXPECT_TRUE(entry.path().filename() == "notes.txt") << writer.word << ": " << entry.path();
    std::filesystem::remove_all(here);
    split(writer, 5);
    auto other = scan().at(0);
    other.digest = first.digest + "x";
    EXPECT_EQ(store::remove(other, dir_).error().code, ErrorCode::unavailable) << writer.word;
    EXPECT_EQ(scan().size(), 1u) << writer.word;
    empty_disks();
  }
}

// `checkpoints --verify` asks by what the ledger noted: names, and no digest.
TEST_F(CheckpointShares, AreVerifiedByTheNamesThatWereFound) {
  for (const Writer& writer : writers()) {
    split(writer, 5);
    auto share = scan_second().at(0);
    share.digest.clear();
    ASSERT_TRUE(store::verify(share)) << writer.word;
    auto trimmed = share;
    trimmed.shares.files.assign(1, {});
    EXPECT_TRUE(store::verify(trimmed)) << writer.word;
    share.shares.files.push_back({"gone", 1, "x"});
    EXPECT_EQ(store::verify(share).error().code, ErrorCode::not_found) << writer.word;
    share.shares.files.pop_back();
    std::string name, bytes, flipped;
    std::size_t at = std::string::npos;
    for (const auto& file : share.shares.files) {
      const std::string content = read(share.path + "/" + file.name);
      const std::size_t place = std::min(content.find("third of"), content.find("moments"));
      if (place == std::string::npos) continue;
      name = file.name;
      bytes = flipped = content;
      at = place;
    }
    ASSERT_LT(at, bytes.size()) << writer.word;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    for (const std::string& wrong : {flipped, bytes.substr(0, bytes.size() - 30)}) {
      write(share.path + "/" + name, wrong);
      const Status damaged = store::verify(share);
      ASSERT_FALSE(damaged) << writer.word;
      EXPECT_EQ(damaged.error().code, ErrorCode::damaged) << writer.word << ": " << damaged.error().text();
      EXPECT_THAT(damaged.error().text(), testing::HasSubstr(name)) << writer.word;
    }
    empty_disks();
  }
}

TEST_F(CheckpointShares, AreQuarantinedAsWholes) {
  for (const Writer& writer : writers()) {
    const auto [here, there] = split(writer, 5);
    const auto moved = store::quarantine(scan().at(0), dir_);
    ASSERT_TRUE(moved) << writer.word << ": " << moved.error().text();
    const bool before = writer.word == std::string("huggingface");
    EXPECT_EQ(*moved, before ? dir_ + "/quarantined-1." + here.substr(dir_.size() + 1) : here + ".quarantined-1");
    EXPECT_TRUE(scan().empty()) << writer.word;
    empty_disks();
  }
}

// Names of a user's own say nothing of ranks, and a directory that is called by no step is none.
TEST_F(CheckpointShares, OtherDirectoriesAreNone) {
  write(dir_ + "/step_5/model.pt", torch_file());
  write(dir_ + "/data/__1_0.distcp", torch_file());
  write(dir_ + "/step_6/__1_0.distcp", "no zip");
  write(dir_ + "/step_7.tmp/__1_0.distcp", torch_file());
  for (const auto& info : scan()) EXPECT_FALSE(info.is_share()) << info.path;
}

}  // namespace
}  // namespace dtrain::test
