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
  const auto table = transfer::shares_table(files, format, "step_5");
  EXPECT_TRUE(table) << table.error().text();
  auto shares = transfer::shares_of(files, format, table.value_or(""));
  EXPECT_TRUE(shares) << shares.error().text();
  return shares.value_or(Shares{});
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

TEST(Shares, WhatIsCutOrForeignDoesNotCount) {
  const auto& format = format_in_shares("torch-distributed");
  const std::string whole = torch_file("b");
  const Shares cut = shares_in(format, directory({{"__0_0.distcp", torch_file("a")}, {"__1_0.distcp", whole.substr(0, whole.size() - 1)}}));
  ASSERT_EQ(cut.files.size(), 1u);
  EXPECT_EQ(cut.files.front().name, "__0_0.distcp");
  FilesInMemory none = directory({{"model.pt", torch_file("a")}, {"notes.txt", "text"}});
  EXPECT_EQ(transfer::shares_table(none, format, "step_5").error().code, ErrorCode::not_found) << "no rank wrote there";
}

TEST(Shares, TooManyFilesAreNotSpokenOf) {
  const auto& format = format_in_shares("torch-distributed");
  FilesInMemory files;
  const std::string one = torch_file("a");
  const std::size_t each = transfer::kSharesBytes / 700;
  for (std::size_t i = 0; i < each; ++i) files.files["__" + std::to_string(i) + "_0.distcp"] = one;
  EXPECT_EQ(shares_in(format, files).files.size(), each) << "so many are";
  for (std::size_t i = 0; i < transfer::kSharesBytes / 64; ++i) files.files["__" + std::to_string(i) + "_0.distcp"] = one;
  const auto table = transfer::shares_table(files, format, "step_5");
  ASSERT_TRUE(table);
  EXPECT_EQ(transfer::shares_of(files, format, *table).error().code, ErrorCode::limit);
}

}  // namespace
}  // namespace dtrain::test
