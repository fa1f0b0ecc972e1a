// Directories with files of many ranks: DeepSpeed's and Megatron's. One without all of its files is never whole, and a whole one of any
// shape never refused.
#include "common/transfer/rank_files.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/transfer/saved_files.h"

namespace dtrain::test {
namespace {

using transfer::Format;

std::string digits(std::uint64_t number, std::size_t width) {
  const std::string text = std::to_string(number);
  return std::string(width - std::min(width, text.size()), '0') + text;
}

struct DeepspeedShape {
  std::uint64_t data = 2, model = 1, zero = 1, layers = 0;
  std::string precision = {};  // before an optimizer's share
  bool says_counts = true;
};

std::string shaped(const std::string& bytes, const std::string& in_pickle = "") { return torch_file(bytes, torch_shape(), in_pickle); }

FilesInMemory deepspeed(const DeepspeedShape& shape) {
  FilesInMemory dir;
  const std::string counts = shape.says_counts ? deepspeed_counts(shape.data, shape.model, shape.zero) : "";
  for (std::uint64_t m = 0; m < shape.model; ++m) {
    const std::string states = "mp_rank_" + digits(m, 2) + "_model_states.pt";
    if (shape.zero < 3) dir.files[states] = shaped("weights", counts);
    for (std::uint64_t d = 0; d < shape.data; ++d) {
      const std::string share = "zero_pp_rank_" + std::to_string(d) + "_mp_rank_" + digits(m, 2);
      if (shape.zero == 3) dir.files[share + "_model_states.pt"] = shaped("weights", counts);
      if (shape.zero > 0) dir.files[shape.precision + share + "_optim_states.pt"] = shaped("moments of " + share);
    }
  }
  for (std::uint64_t layer = 0; layer < shape.layers; ++layer)
    dir.files["layer_" + digits(3 * layer, 2) + "-model_states.pt"] = shaped("layer");
  dir.files["zero_to_fp32.py"] = "# its script, which is copied beside the states";
  return dir;
}

struct MegatronShape {
  std::uint64_t tensor = 2, pipeline = 2, expert = 1;
  bool shares = true, says_counts = true;
};

FilesInMemory megatron(const MegatronShape& shape) {
  FilesInMemory dir;
  std::string sizes;
  if (shape.says_counts)
    sizes = pickled("tensor_model_parallel_size", shape.tensor) + pickled("pipeline_model_parallel_size", shape.pipeline) +
            pickled("expert_model_parallel_size", shape.expert);
  for (std::uint64_t t = 0; t < shape.tensor; ++t)
    for (std::uint64_t p = 0; p < shape.pipeline; ++p)
      for (std::uint64_t e = 0; e < shape.expert; ++e) {
        std::string name = "mp_rank_" + digits(t, 2);
        if (shape.pipeline > 1) name += "_" + digits(p, 3);
        if (shape.expert > 1) name += "_" + digits(e, 3);
        dir.files[name + "/model_optim_rng.pt"] = shaped("weights of " + name, sizes);
        if (shape.shares) dir.files[name + "/distrib_optim.pt"] = shaped("moments of " + name);
      }
  return dir;
}

Status verified(const char* word, FilesInMemory files, const std::string& base = "step_5") {
  return verify_in_memory(format_named(word), files, base);
}

std::string without_each_file(const char* word, const FilesInMemory& whole) {
  for (const auto& file : whole.files) {
    FilesInMemory less = whole;
    less.files.erase(file.first);
    if (file.first.ends_with(".pt") && file.first.find("layer_") == std::string::npos && verified(word, less)) return file.first;
  }
  return "";
}

TEST(RankFiles, GoodOnesOfEveryShapeHoldAndNoneWithoutOneOfItsFiles) {
  std::mt19937 random(34);
  const auto below = [&](std::uint64_t bound) { return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(random); };
  for (int round = 0; round < 1000; ++round) {
    DeepspeedShape d{1 + below(12), 1 + below(4), below(4), below(3), below(2) ? "bf16_" : "", below(4) != 0};
    if (round == 0) d = {101, 1, 2, 0, "", true};
    const FilesInMemory deep = deepspeed(d);
    const Status good = verified("deepspeed", deep, "global_step" + std::to_string(round));
    ASSERT_TRUE(good) << good.error().message << ": " << d.data << " " << d.model << " " << d.zero;
    if (d.says_counts && round % 10 == 0) {
      EXPECT_EQ(without_each_file("deepspeed", deep), "") << d.data << " " << d.model << " " << d.zero;
    }
    MegatronShape m{1 + below(8), 1 + below(4), 1 + below(3), below(2) == 0, below(4) != 0};
    if (round == 0) m = {128, 1, 1, false, true};
    const FilesInMemory mega = megatron(m);
    const Status also = verified("megatron", mega, "iter_0000005");
    ASSERT_TRUE(also) << also.error().message << ": " << m.tensor << " " << m.pipeline << " " << m.expert;
    if (m.says_counts && round % 10 == 0 && m.tensor * m.pipeline * m.expert > 1) {
      EXPECT_EQ(without_each_file("megatron", mega), "");
    }
  }
}

// On each of several hosts with disks of their own lie some ranks: that is no checkpoint. Numbers without holes alone would not show it.
TEST(RankFiles, TheFirstRanksAloneAreNotWhole) {
  FilesInMemory some = deepspeed({.data = 8});
  for (const char* rank : {"4", "5", "6", "7"}) some.files.erase(std::string("zero_pp_rank_") + rank + "_mp_rank_00_optim_states.pt");
  EXPECT_NE(verified("deepspeed", some).error().message.find("only those of 4 of 8 ranks"), std::string::npos);
  some = deepspeed({.model = 2});
  std::erase_if(some.files, [](const auto& file) { return file.first.find("mp_rank_01") != std::string::npos; });
  EXPECT_FALSE(verified("deepspeed", some));
  some = deepspeed({.zero = 2});
  std::erase_if(some.files, [](const auto& file) { return file.first.find("optim") != std::string::npos; });
  EXPECT_NE(verified("deepspeed", some).error().message.find("optimizer's states are missing"), std::string::npos);
  some = megatron({});
  std::erase_if(some.files, [](const auto& file) { return file.first.starts_with("mp_rank_01"); });
  EXPECT_NE(verified("megatron", some).error().message.find("only 2 of 4 ranks"), std::string::npos);
  some = megatron({.says_counts = false});
  some.files.erase("mp_rank_00_001/model_optim_rng.pt");
  EXPECT_NE(verified("megatron", some).error().message.find("mp_rank_00_001/model_optim_rng.pt is missing"), std::string::npos);
  some = megatron({});
  some.files.erase("mp_rank_01_001/distrib_optim.pt");
  EXPECT_NE(verified("megatron", some).error().message.find("only some ranks"), std::string::npos);
}

TEST(RankFiles, FilesThatTorchDidNotWriteAsZips) {
  FilesInMemory files = deepspeed({});
  files.files["zero_pp_rank_1_mp_rank_00_optim_states.pt"] = std::string(4096, '\0');  // space that was reserved
  EXPECT_EQ(verified("deepspeed", files).error().code, ErrorCode::damaged);
  files.files["zero_pp_rank_1_mp_rank_00_optim_states.pt"] = "";
  EXPECT_EQ(verified("deepspeed", files).error().code, ErrorCode::damaged);
  files.files["zero_pp_rank_1_mp_rank_00_optim_states.pt"] = "\x80\2}.";
  EXPECT_EQ(verified("deepspeed", files).error().code, ErrorCode::refused);
}

// One bit of one file of a checkpoint, 10,000 times: only what no zip proves is missed, and that is no tensor and no number of ranks.
TEST(RankFiles, FlipsAreCaughtWhereAnythingDependsOnThem) {
  std::mt19937 random(7);
  for (const auto& [word, whole] : {std::pair("deepspeed", deepspeed({.model = 2})), std::pair("megatron", megatron({}))}) {
    int caught = 0, not_provable = 0;
    for (int round = 0; round < 10'000; ++round) {
      FilesInMemory flipped = whole;
      auto file = flipped.files.begin();
      std::advance(file, random() % flipped.files.size());
      if (!file->first.ends_with(".pt")) continue;
      const std::size_t at = random() % file->second.size();
      file->second[at] = static_cast<char>(file->second[at] ^ 1 << random() % 8);
      if (!verified(word, flipped)) {
        ++caught;
        continue;
      }
      ++not_provable;
      for (const char* text : {"weights", "moments", "world_size", "parallel_size", "stage"}) {
        const std::size_t first = whole.files.at(file->first).find(text);
        EXPECT_FALSE(first != std::string::npos && at >= first && at < first + std::string_view(text).size()) << file->first << " " << at;
      }
    }
    RecordProperty(std::string(word) + "_caught", caught);
    RecordProperty(std::string(word) + "_not_provable", not_provable);
    EXPECT_GT(caught, not_provable);
  }
}

TEST(RankFiles, NamesHaveNumbers) {
  using transfer::numbers_in_name;
  EXPECT_EQ(numbers_in_name("mp_rank_#_#", "mp_rank_07_012"), (transfer::RankPlace{7, 12}));
  for (const char* name : {"mp_rank_07", "mp_rank_07_", "mp_rank_07_1_2", "mp_rank_a_1", "xmp_rank_1_1", "mp_rank_9999999_1", ""})
    EXPECT_TRUE(numbers_in_name("mp_rank_#_#", name).empty()) << name;
}

TEST(RankFiles, PickledNumbersAreFoundWithoutUnpickling) {
  using transfer::pickled_number;
  for (const std::uint64_t number : {1ull, 255ull, 256ull, 65'535ull, 65'536ull})
    EXPECT_EQ(pickled_number("xx" + pickled("key", number), "key"), number);
  EXPECT_EQ(pickled_number("\x8c\x03key\x94K\x05.", "key"), 5u);
  for (const std::string& none : {std::string(), std::string("X\3\0\0\0key", 8), std::string("X\3\0\0\0keyq\1N.", 11),
                                  std::string("X\3\0\0\0keyK", 9), std::string("X\3\0\0\0keyJ\xff\xff\xff\xff", 13), pickled("other", 4)})
    EXPECT_EQ(pickled_number(none, "key"), 0u);
}

TEST(RankFiles, TrackerNamesTheNewest) {
  const transfer::Hint &latest = *format_named("deepspeed").hint, &iteration = *format_named("megatron").hint,
                       &shared = *format_named("torch-distributed").hint;
  EXPECT_EQ(latest.without("global_step7\n", "/d", "/d/global_step7", "/d/global_step6"), "global_step6");
  EXPECT_EQ(latest.without("global_step7", "/d", "/d/global_step7", ""), "");
  EXPECT_EQ(latest.without("global_step7", "/d", "/d/global_step6", ""), std::nullopt);
  EXPECT_EQ(iteration.without("700", "/d", "/d/iter_0000700", "/d/iter_0000600"), "600");
  EXPECT_EQ(iteration.without("12345678", "/d", "/d/iter_12345678", "/d/iter_0000000"), "0");
  EXPECT_EQ(iteration.without("release", "/d", "/d/iter_0000700", ""), std::nullopt);
  EXPECT_EQ(latest.with("", "/d", "global_step8", 0, false), "global_step8");
  EXPECT_EQ(latest.with("global_step9", "/d", "global_step8", 0, false), "global_step8");
  EXPECT_EQ(latest.with("global_step9", "/d", "global_step8", 0, true), std::nullopt);
  EXPECT_EQ(latest.with("", "/d", "a/global_step8", 0, false), std::nullopt);
  EXPECT_EQ(iteration.with("", "/d", "iter_0000800", 0, false), "800");
  EXPECT_EQ(iteration.with("", "/d", "other", 0, false), std::nullopt);
  EXPECT_EQ(shared.with("", "/d", "iter_0000800", 0, false), std::nullopt) << "most who write this format have no tracker";
  EXPECT_EQ(shared.with("700", "/d", "iter_0000800", 0, false), "800");
  EXPECT_TRUE(latest.mentioned("global_step7", "/d").empty());
}

}  // namespace
}  // namespace dtrain::test
