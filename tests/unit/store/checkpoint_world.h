// A temporary directory of checkpoints for tests, removed at the end whatever happened.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "agent/store/checkpoint_reader.h"
#include "common/transfer/digest.h"
#include "common/transfer/tf_bundle.h"
#include "tests/unit/transfer/bundle_writer.h"
#include "tests/unit/transfer/saved_files.h"

namespace dtrain::test {

inline std::string sha256_of(const std::string& bytes) {
  auto sha = transfer::Sha256::portable();
  sha.update(bytes);
  return sha.finish_hex();
}

class CheckpointWorld : public testing::Test {
 protected:
  CheckpointWorld() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dtrain-checkpoints-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    dir_ = root_ + "/ckpt";
    std::filesystem::create_directory(dir_);
    spec_.dir = dir_;
  }
  ~CheckpointWorld() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  static void write(const std::string& path, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << bytes;
    out.close();
    ASSERT_TRUE(out) << path;
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static bool exists(const std::string& path) { return std::filesystem::exists(std::filesystem::symlink_status(path)); }

  using Files = std::vector<std::pair<std::string, std::string>>;
  static std::string manifest_of(std::int64_t step, const Files& files) {
    std::string text = "{\"version\":1,\"step\":" + std::to_string(step) + ",\"files\":[";
    for (std::size_t i = 0; i < files.size(); ++i)
      text += std::string(i ? "," : "") + "{\"name\":\"" + files[i].first + "\",\"size\":" + std::to_string(files[i].second.size()) +
              ",\"sha256\":\"" + sha256_of(files[i].second) + "\"}";
    return text + "]}";
  }
  static void write_manifest_checkpoint(const std::string& path, std::int64_t step, const Files& files) {
    for (const auto& [name, bytes] : files) write(path + "/" + name, bytes);
    write(path + "/MANIFEST.json", manifest_of(step, files));
  }
  std::string manifest_checkpoint(std::int64_t step) {
    const std::string path = dir_ + "/step-" + std::to_string(step);
    write_manifest_checkpoint(path, step, {{"w.bin", "weights " + std::to_string(step)}, {"b.bin", "biases"}});
    return path;
  }

  static void write_bundle_checkpoint(const std::string& prefix, const Bundle& bundle) {
    const auto shards = static_cast<std::uint32_t>(bundle.shards.size());
    for (std::uint32_t i = 0; i < shards; ++i) write(transfer::bundle_data_name(prefix, i, shards), bundle.shards[i]);
    write(prefix + ".index", bundle.index);
  }
  static Bundle small_bundle() {
    Tensor weights{.name = "layer/w", .shape = {2, 3}, .bytes = std::string(24, 'w')};
    Tensor bias{.name = "layer/b", .shape = {3}, .bytes = std::string(12, 'b'), .shard = 1};
    Tensor graph{.name = "_CHECKPOINTABLE_OBJECT_GRAPH", .dtype = 7, .elements = {"graph bytes"}};
    Tensor step{.name = "global_step", .dtype = 9, .bytes = little_endian(7, 8), .shard = 1};
    return write_bundle({weights, bias, graph, step}, 2);
  }
  std::string bundle_checkpoint(std::int64_t step) {
    const std::string prefix = dir_ + "/model.ckpt-" + std::to_string(step);
    write_bundle_checkpoint(prefix, small_bundle());
    return prefix;
  }

  std::string torch_checkpoint(std::int64_t step, const std::string& weights = "weights of step ") {
    const std::string path = dir_ + "/ckpt_" + std::to_string(step) + ".pt";
    write(path, torch_file(weights + std::to_string(step)));
    return path;
  }
  std::string safetensors_checkpoint(std::int64_t step) {
    const std::string path = dir_ + "/step-" + std::to_string(step) + ".safetensors";
    write(path, safetensors_file({{"w", "weights " + std::to_string(step)}, {"b", "biases"}}));
    return path;
  }
  // As Hugging Face's Trainer writes it, with its model in two files.
  std::string huggingface_checkpoint(std::int64_t step) {
    const std::string path = dir_ + "/checkpoint-" + std::to_string(step);
    write(path + "/config.json", "{}");
    write(path + "/model-00001-of-00002.safetensors", safetensors_file({{"w", "weights " + std::to_string(step)}}));
    write(path + "/model-00002-of-00002.safetensors", safetensors_file({{"b", "biases"}}));
    write(path + "/model.safetensors.index.json",
          R"({"metadata":{"total_size":15},"weight_map":{"w":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
    write(path + "/optimizer.pt", torch_file("moments"));
    write(path + "/trainer_state.json", "{\n  \"epoch\": 1.5,\n  \"global_step\": " + std::to_string(step) +
                                            ",\n  \"log_history\": [{\"loss\": NaN, \"global_step\": 3}]\n}");
    return path;
  }
  // As torch.distributed.checkpoint writes it, of two ranks.
  std::string distributed_checkpoint(std::int64_t step) {
    const std::string path = dir_ + "/step_" + std::to_string(step);
    write(path + "/__0_0.distcp", torch_file("first") + torch_file("second"));
    write(path + "/__1_0.distcp", torch_file("third of " + std::to_string(step)));
    const std::string names = "(\x8c\x0d__0_0.distcp\x94K\1\x8c\x0d__1_0.distcp\x94u.";
    write(path + "/.metadata", "\x80\4\x95" + le(names.size(), 8) + names);
    return path;
  }

  // As DeepSpeed writes it, with ZeRO 1 or 3 on two ranks.
  std::string deepspeed_checkpoint(std::int64_t step, int zero = 1) {
    const std::string path = dir_ + "/global_step" + std::to_string(step), counts = deepspeed_counts(2, 1, zero);
    const std::string model = torch_file("weights " + std::to_string(step), torch_shape(), counts);
    if (zero < 3) write(path + "/mp_rank_00_model_states.pt", model);
    for (const std::string rank : {"0", "1"}) {
      if (zero == 3) write(path + "/zero_pp_rank_" + rank + "_mp_rank_00_model_states.pt", model);
      write(path + "/" + (zero < 3 ? "bf16_" : "") + "zero_pp_rank_" + rank + "_mp_rank_00_optim_states.pt", torch_file("moments " + rank));
    }
    write(dir_ + "/latest", "global_step" + std::to_string(step));
    return path;
  }
  // As Hugging Face's Trainer writes it with DeepSpeed, or with FSDP, on two ranks.
  std::string trainer_directory(std::int64_t step) {
    const std::string path = dir_ + "/checkpoint-" + std::to_string(step);
    write(path + "/config.json", "{}");
    write(path + "/trainer_state.json", "{\"global_step\": " + std::to_string(step) + "}");
    return path;
  }
  std::string trainer_with_deepspeed(std::int64_t step) {
    const std::string path = trainer_directory(step);
    std::filesystem::rename(deepspeed_checkpoint(step), path + "/global_step" + std::to_string(step));
    std::filesystem::rename(dir_ + "/latest", path + "/latest");
    return path;
  }
  std::string trainer_with_fsdp(std::int64_t step) {
    const std::string path = trainer_directory(step);
    for (const char* inner : {"/optimizer_0", "/pytorch_model_fsdp_0"}) std::filesystem::rename(distributed_checkpoint(step), path + inner);
    return path;
  }
  // As Megatron writes it, of two tensor and two pipeline ranks.
  std::string megatron_checkpoint(std::int64_t step) {
    const std::string digits = std::to_string(step), path = dir_ + "/iter_" + std::string(7 - digits.size(), '0') + digits;
    const std::string sizes = pickled("tensor_model_parallel_size", 2) + pickled("pipeline_model_parallel_size", 2);
    for (const std::string rank : {"00_000", "00_001", "01_000", "01_001"}) {
      write(path + "/mp_rank_" + rank + "/distrib_optim.pt", torch_file("moments"));
      write(path + "/mp_rank_" + rank + "/model_optim_rng.pt", torch_file("weights " + digits, torch_shape(), sizes));
    }
    write(dir_ + "/latest_checkpointed_iteration.txt", digits);
    return path;
  }

  std::vector<transfer::CheckpointInfo> scan() {
    auto found = store::scan(spec_);
    EXPECT_TRUE(found) << found.error().text();
    return found ? *found : std::vector<transfer::CheckpointInfo>{};
  }

  std::string root_, dir_;
  job::CheckpointSpec spec_;
};

}  // namespace dtrain::test
