// What hosts have of a checkpoint together whose ranks wrote to their own disks.
#include "common/transfer/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/transfer/saved_files.h"

namespace dtrain::test {
namespace {

using transfer::Shares;
using transfer::together;

const transfer::Format& format_in_shares(std::string_view name) {
  return **std::ranges::find_if(transfer::formats(), [&](const auto* f) { return f->name == name; });
}

Shares shares_in(const transfer::Format& format, FilesInMemory files) {
  auto read = transfer::read_shares(files, format, "step_5");
  EXPECT_TRUE(read) << read.error().text();
  return read.value_or(transfer::SharesRead{}).told;
}

FilesInMemory directory(std::map<std::string, std::string> files) {
  FilesInMemory all;
  all.files = std::move(files);
  return all;
}

std::string metadata_of(const std::string& more = "") {
  const std::string names = "(\x8c\x0d__0_0.distcp\x94K\1\x8c\x0d__1_0.distcp\x94" + more + "u.";
  return "\x80\4\x95" + le(names.size(), 8) + names;
}

TEST(Shares, OfTorchDistributed) {
  const auto& format = format_in_shares("torch-distributed");
  const Shares first = shares_in(format, directory({{".metadata", metadata_of()}, {"__0_0.distcp", torch_file("a")}}));
  const Shares second = shares_in(format, directory({{"__1_0.distcp", torch_file("b")}}));
  EXPECT_TRUE(second.list.empty());
  EXPECT_EQ(together(format, {&first}).lacks, "__1_0.distcp is missing");
  EXPECT_FALSE(together(format, {&second}).known);
  EXPECT_FALSE(together(format, {&second}).whole());
  const auto both = together(format, {&second, &first});
  EXPECT_TRUE(both.whole());
  EXPECT_EQ(both.names, (std::vector<std::string>{".metadata", "__0_0.distcp", "__1_0.distcp"}));
  EXPECT_EQ(both.bytes, metadata_of().size() + torch_file("a").size() + torch_file("b").size());
}

// Two saves of one step do not mix, whichever file shows that they are two.
TEST(Shares, ThatDifferAreNotWholeTogether) {
  const auto& format = format_in_shares("torch-distributed");
  const Shares first = shares_in(format, directory({{".metadata", metadata_of()}, {"__0_0.distcp", torch_file("a")}}));
  const Shares anew = shares_in(format, directory({{".metadata", metadata_of("K\2")}, {"__1_0.distcp", torch_file("b")}}));
  EXPECT_EQ(together(format, {&first, &anew}).lacks, ".metadata differs among the hosts that have it");
  const Shares second = shares_in(format, directory({{"__1_0.distcp", torch_file("b")}}));
  const Shares other = shares_in(format, directory({{"__1_0.distcp", torch_file("c")}}));
  EXPECT_EQ(together(format, {&first, &second, &other}).lacks, "__1_0.distcp differs among the hosts that have it");
  EXPECT_TRUE(together(format, {&first, &second, &second}).whole()) << "the same twice";
}

TEST(Shares, OfDeepspeedAndMegatron) {
  const auto& deepspeed = format_in_shares("deepspeed");
  const std::string model = torch_file("weights", torch_shape(), deepspeed_counts(2, 1, 1));
  const Shares first = shares_in(
      deepspeed, directory({{"mp_rank_00_model_states.pt", model}, {"zero_pp_rank_0_mp_rank_00_optim_states.pt", torch_file("m0")}}));
  const Shares second = shares_in(deepspeed, directory({{"zero_pp_rank_1_mp_rank_00_optim_states.pt", torch_file("m1")}}));
  EXPECT_THAT(together(deepspeed, {&first}).lacks, testing::HasSubstr("only those of 1 of 2 ranks are there"));
  EXPECT_FALSE(together(deepspeed, {&second}).known);
  EXPECT_TRUE(together(deepspeed, {&first, &second}).whole()) << together(deepspeed, {&first, &second}).lacks;

  const auto& megatron = format_in_shares("megatron");
  const std::string sizes = pickled("tensor_model_parallel_size", 2) + pickled("pipeline_model_parallel_size", 1);
  const Shares rank0 = shares_in(megatron, directory({{"mp_rank_00/model_optim_rng.pt", torch_file("w0", torch_shape(), sizes)}}));
  const Shares rank1 = shares_in(megatron, directory({{"mp_rank_01/model_optim_rng.pt", torch_file("w1", torch_shape(), sizes)}}));
  EXPECT_EQ(together(megatron, {&rank0}).lacks, "only 1 of 2 ranks are there");
  EXPECT_FALSE(together(megatron, {&rank1}).known);
  EXPECT_TRUE(together(megatron, {&rank1, &rank0}).whole());
}

// What Hugging Face's Trainer writes on two hosts: the second has only its ranks' files, or, with save_on_each_node, files of its own
// beside.
TEST(Shares, OfTheTrainer) {
  const auto& format = format_in_shares("huggingface");
  const std::string model = torch_file("weights", torch_shape(), deepspeed_counts(2, 1, 1)), state = R"({"global_step": 5})";
  const auto of_second = [](std::map<std::string, std::string> files) {
    files["rng_state_1.pth"] = torch_file("r1");
    return files;
  };
  const auto of_first = [&](std::map<std::string, std::string> files) {
    files.insert({{"rng_state_0.pth", torch_file("r0")}, {"config.json", "{}"}, {"trainer_state.json", state}});
    return files;
  };
  const std::map<std::string, std::string> deepspeed{{"global_step5/mp_rank_00_model_states.pt", model},
                                                     {"global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt", torch_file("m0")}};
  const std::map<std::string, std::string> fsdp{{"pytorch_model_fsdp_0/.metadata", metadata_of()},
                                                {"pytorch_model_fsdp_0/__0_0.distcp", torch_file("a")},
                                                {"optimizer_0/.metadata", metadata_of()},
                                                {"optimizer_0/__0_0.distcp", torch_file("b")}};
  const std::string moments = "global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt", weights = "pytorch_model_fsdp_0/__1_0.distcp",
                    optimizer = "optimizer_0/__1_0.distcp";
  struct Case {
    std::map<std::string, std::string> first, second;
    const char* lacks;
  };
  for (const auto& [first_files, second_files, lacks] :
       {Case{deepspeed, {{moments, torch_file("m1")}}, "only those of 1 of 2 ranks are there"},
        Case{fsdp, {{weights, torch_file("c")}, {optimizer, torch_file("d")}}, "optimizer_0/__1_0.distcp is missing"}}) {
    const Shares first = shares_in(format, directory(of_first(first_files))),
                 second = shares_in(format, directory(of_second(second_files)));
    EXPECT_THAT(together(format, {&first}).lacks, testing::HasSubstr(lacks));
    EXPECT_FALSE(together(format, {&second}).known);
    const auto both = together(format, {&second, &first});
    EXPECT_TRUE(both.whole()) << both.lacks;
    EXPECT_THAT(both.names, testing::IsSupersetOf({"config.json", "rng_state_0.pth", "rng_state_1.pth", "trainer_state.json"}));

    auto own_state = of_second(second_files);
    own_state["trainer_state.json"] = R"({"global_step": 5, "is_world_process_zero": false})";
    own_state["config.json"] = "{ }";
    const Shares each_node = shares_in(format, directory(own_state));
    EXPECT_EQ(each_node, second) << "it tells of its ranks' files alone";

    auto unfinished = of_first(first_files);
    unfinished.erase("trainer_state.json");
    EXPECT_TRUE(shares_in(format, directory(unfinished)).list.empty());
    auto less = of_second(second_files);
    less.erase(second_files.begin()->first);
    if (less.size() == 1) continue;
    const Shares part = shares_in(format, directory(less));
    EXPECT_THAT(together(format, {&first, &part}).lacks, testing::HasSubstr("is missing"));
  }
  // Without such directories one process writes all but the random states: those are no shares.
  FilesInMemory plain = directory(of_second({}));
  EXPECT_EQ(transfer::read_shares(plain, format, "checkpoint-5").error().code, ErrorCode::not_found);
  FilesInMemory whole = directory(of_first({{"model.safetensors", safetensors_file({{"w", "w"}})}}));
  EXPECT_EQ(transfer::read_shares(whole, format, "checkpoint-5").error().code, ErrorCode::not_found);
}

TEST(Shares, WhatIsCutOrForeignDoesNotCount) {
  const auto& format = format_in_shares("torch-distributed");
  const std::string whole = torch_file("b");
  const Shares cut = shares_in(format, directory({{"__0_0.distcp", torch_file("a")}, {"__1_0.distcp", whole.substr(0, whole.size() - 1)}}));
  ASSERT_EQ(cut.files.size(), 1u);
  EXPECT_EQ(cut.files.front().name, "__0_0.distcp");
  FilesInMemory none = directory({{"model.pt", torch_file("a")}, {"notes.txt", "text"}});
  EXPECT_EQ(transfer::read_shares(none, format, "step_5").error().code, ErrorCode::not_found) << "no rank wrote there";
}

TEST(Shares, TooManyFilesAreNotSpokenOf) {
  const auto& format = format_in_shares("torch-distributed");
  FilesInMemory files;
  const std::string one = torch_file("a");
  const std::size_t each = transfer::kSharesBytes / 700;
  for (std::size_t i = 0; i < each; ++i) files.files["__" + std::to_string(i) + "_0.distcp"] = one;
  EXPECT_EQ(shares_in(format, files).files.size(), each) << "so many are";
  for (std::size_t i = 0; i < transfer::kSharesBytes / 64; ++i) files.files["__" + std::to_string(i) + "_0.distcp"] = one;
  EXPECT_EQ(transfer::read_shares(files, format, "step_5").error().code, ErrorCode::limit);
}

}  // namespace
}  // namespace dtrain::test
