// The words for formats of checkpoints: those of the table, behind "auto", with the numbers that records have.
#include <gtest/gtest.h>

#include "common/job/names.h"
#include "common/transfer/format.h"
#include "common/wire/codec.h"

namespace dtrain::job {
namespace {

TEST(CheckpointFormats, WordsKeepTheirNumbers) {
  const std::vector<std::string> stored = {
      "auto",  "manifest", "tensorflow", "torch",    "safetensors", "huggingface", "torch-distributed",
      "numpy", "keras",    "deepspeed",  "megatron", "orbax",       "hdf5",        "xgboost"};  // by the number in every record
  const auto words = all_words<CheckpointFormat>();
  ASSERT_GE(words.size(), stored.size());
  EXPECT_EQ(words.size(), transfer::formats().size() + 1);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(words[i], stored[i]);
    EXPECT_EQ(static_cast<std::size_t>(*from_word<CheckpointFormat>(stored[i])), i);
  }
  CheckpointSpec spec;
  for (std::size_t i = 0; i < words.size(); ++i) {
    spec.format = CheckpointFormat(i);
    const auto back = wire::decode<CheckpointSpec>(wire::encode(spec));
    ASSERT_TRUE(back) << words[i];
    EXPECT_EQ(word_for(back->format), words[i]);
    EXPECT_EQ(wire::needed_version(spec), i <= 2 ? 1u : 3u) << words[i];
  }
  spec.format = CheckpointFormat(words.size());
  EXPECT_FALSE(wire::decode<CheckpointSpec>(wire::encode(spec)));
}

TEST(CheckpointFormats, EachIsLookedForByAutoAndByItsOwnWord) {
  for (std::size_t i = 0; i < transfer::formats().size(); ++i) {
    const transfer::FormatId id{static_cast<unsigned char>(i)};
    EXPECT_EQ(word_for(only(id)), transfer::format_of(id).name);
    for (std::size_t chosen = 0; chosen <= transfer::formats().size(); ++chosen) {
      CheckpointSpec spec;
      spec.format = CheckpointFormat(chosen);
      EXPECT_EQ(looks_for(spec, id), chosen == 0 || chosen == i + 1);
    }
  }
}

}  // namespace
}  // namespace dtrain::job
