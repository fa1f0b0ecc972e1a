// Files of HDF5 and models of XGBoost: every cut is found, and what a flip can hide is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/transfer/text_walk.h"
#include "tests/unit/transfer/saved_files.h"

namespace dtrain::test {
namespace {

using transfer::Format;

bool whole(const char* word, const std::string& base, const std::string& bytes, std::size_t step = 1 << 20) {
  FilesInMemory files(base, bytes);
  return verify_in_memory(format_named(word), files, base, step).has_value();
}

ErrorCode code_of_file(const char* word, const std::string& base, const std::string& bytes) {
  FilesInMemory files(base, bytes);
  const Status status = verify_in_memory(format_named(word), files, base);
  return status ? ErrorCode::internal : status.error().code;
}

// A file of HDF5 with a superblock of version 0 or 1, and bytes where the objects would be.
std::string hdf5_file(const std::string& objects, unsigned version = 0, std::size_t user_block = 0, std::size_t width = 8) {
  const std::size_t head = (version == 0 ? 24 : 28) + 6 * width + 24;
  const std::uint64_t end = user_block + head + objects.size();
  std::string block = std::string("\x89HDF\r\n\x1a\n") + static_cast<char>(version) + std::string(4, '\0') + static_cast<char>(width) +
                      static_cast<char>(width) + '\0' + le(4, 2) + le(16, 2) + le(0, 4);
  if (version == 1) block += le(32, 2) + le(0, 2);
  block += le(user_block, width) + std::string(width, '\xff') + le(end, width) + std::string(width, '\xff');
  block += le(0, width) + le(head, width) + le(0, 4) + le(0, 4) + std::string(16, '\0');
  return std::string(user_block, 'u') + block + objects;
}

TEST(Hdf5, EveryCutIsFound) {
  for (const unsigned version : {0u, 1u})
    for (const std::size_t user_block : {0u, 512u, 4096u})
      for (const std::size_t width : {4u, 8u}) {
        const std::string good = hdf5_file("weights of a model", version, user_block, width);
        ASSERT_TRUE(whole("hdf5", "ckpt_1.h5", good)) << version << " " << user_block << " " << width;
        for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(whole("hdf5", "ckpt_1.h5", good.substr(0, size))) << size;
        EXPECT_FALSE(whole("hdf5", "ckpt_1.h5", good + "x"));
      }
}

// As `h5py.File(name, "w", libver="latest")` wrote it: version 3 of the superblock, whose checksum is that of the library itself.
std::string newest_hdf5() {
  const std::string block =
      std::string("\x89HDF\r\n\x1a\n\x03\x08\x08\x00", 12) + le(0, 8) + std::string(8, '\xff') + le(195, 8) + le(48, 8);
  return block + le(0x37611a06, 4) + std::string(147, 'o');
}

TEST(Hdf5, NewerSuperblocksHaveAChecksum) {
  const std::string good = newest_hdf5();
  ASSERT_TRUE(whole("hdf5", "w.h5", good));
  for (std::size_t bit = 0; bit < 8 * 48; ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(whole("hdf5", "w.h5", flipped)) << bit;
  }
}

TEST(Hdf5, WhatIsNotFinishedAndWhatIsNone) {
  EXPECT_EQ(code_of_file("hdf5", "w.h5", ""), ErrorCode::damaged);
  EXPECT_EQ(code_of_file("hdf5", "w.h5", std::string(3000, '\0')), ErrorCode::damaged);
  EXPECT_EQ(code_of_file("hdf5", "w.h5", "a file of another program"), ErrorCode::refused);
  std::string odd = hdf5_file("w");
  odd[8] = 9;
  EXPECT_EQ(code_of_file("hdf5", "w.h5", odd), ErrorCode::refused);
}

TEST(Hdf5, AThousandGoodOnesAndTenThousandFlips) {
  std::mt19937 random(5);
  for (int round = 0; round < 1000; ++round) {
    const std::string objects(1 + random() % 100'000, static_cast<char>(random()));
    EXPECT_TRUE(
        whole("hdf5", "w.h5", hdf5_file(objects, random() % 2, random() % 3 ? 0 : std::size_t{512} << random() % 8, random() % 2 ? 8 : 4)));
  }
  const std::string good = hdf5_file(std::string(400, 'w'));
  int caught = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string flipped = good;
    const std::size_t at = random() % good.size();
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << random() % 8);
    caught += whole("hdf5", "w.h5", flipped) ? 0 : 1;
  }
  RecordProperty("caught", caught);
  RecordProperty("not_provable", 10'000 - caught);
  EXPECT_GT(caught, 200) << "the mark, the widths, the base and the end";
}

// ---- XGBoost

const std::string kJsonModel = R"({"learner":{"attributes":{},"feature_names":["a\"b\u00e9"],"gradient_booster":{"model":{)"
                               R"("trees":[{"base_weights":[-1.5E-1,2E0,NaN],"x":[]}]}},)"
                               R"("flags":[true,false,null]},"version":[1,7,4]})";

std::string key(const std::string& text) { return "L" + std::string(7, '\0') + static_cast<char>(text.size()) + text; }

// As XGBoost writes UBJSON: typed and counted arrays, lengths of 8 bytes.
std::string ubjson_model() {
  const std::string floats = "[$d#L" + std::string(7, '\0') + "\3" + std::string(12, 'f');
  const std::string list =
      "[#L" + std::string(7, '\0') + "\2" + "{" + key("w") + floats + key("n") + "l" + std::string(4, '\0') + "}" + "S" + key("text");
  const std::string none = "[$l#L" + std::string(8, '\0');
  return "{" + key("learner") + "{" + key("trees") + list + key("none") + none + key("yes") + "T" + key("z") + "Z" + "}" + key("version") +
         "[#L" + std::string(7, '\0') + "\2i\1i\7" + "}";
}

TEST(Xgboost, EveryCutIsFoundHoweverItIsFed) {
  for (const std::string& good : {kJsonModel, ubjson_model()}) {
    for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{1000}})
      ASSERT_TRUE(whole("xgboost", "model_5.json", good, step)) << good;
    for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(whole("xgboost", "model_5.json", good.substr(0, size))) << size;
    EXPECT_FALSE(whole("xgboost", "model_5.json", good + "}"));
  }
  EXPECT_TRUE(whole("xgboost", "model_5.json", kJsonModel + "\n"));
  EXPECT_FALSE(whole("xgboost", "model_5.json", kJsonModel + kJsonModel));
}

TEST(Xgboost, BinaryModelsAndOtherFilesAreLeftAlone) {
  EXPECT_EQ(code_of_file("xgboost", "m.model", "binf" + std::string(200, '\0')), ErrorCode::refused);
  EXPECT_EQ(code_of_file("xgboost", "m.json", R"({"a": "a configuration of something else"})"), ErrorCode::refused);
  EXPECT_EQ(code_of_file("xgboost", "m.json", "[1, 2]"), ErrorCode::refused);
  EXPECT_EQ(code_of_file("xgboost", "m.json", ""), ErrorCode::damaged);
  EXPECT_EQ(format_named("xgboost").step_of("model_12.json"), 12);
}

// Flips in numbers and texts give other numbers and texts; those in the structure are found.
TEST(Xgboost, TenThousandFlips) {
  std::mt19937 random(6);
  for (const std::string& good : {kJsonModel, ubjson_model()}) {
    int caught = 0;
    for (int round = 0; round < 10'000; ++round) {
      std::string flipped = good;
      const std::size_t at = random() % good.size();
      flipped[at] = static_cast<char>(flipped[at] ^ 1 << random() % 8);
      const bool good_still = whole("xgboost", "m.json", flipped);
      caught += good_still ? 0 : 1;
      if (std::string_view("{}[]:").find(good[at]) != std::string_view::npos && good == kJsonModel) {
        EXPECT_FALSE(good_still) << at;
      }
    }
    RecordProperty(good == kJsonModel ? "json_caught" : "ubjson_caught", caught);
    EXPECT_GT(caught, 3000);
  }
}

// One value of random shape, in both languages.
struct Writer {
  std::mt19937 random{34};
  std::size_t below(std::size_t bound) { return random() % bound; }

  std::string json(std::size_t depth) {
    static constexpr const char* kScalars[] = {"0",   "-1",        "12.5", "1E-7", "true", "null", "\"\"", "\"a\\n\\\"\\u12aF\"",
                                               "NaN", "-Infinity", "[]",   "{ }"};
    if (depth == 0 || below(4) == 0) return kScalars[below(std::size(kScalars))];
    const bool object = below(2) == 0;
    std::string out = object ? "{" : "[";
    for (std::size_t i = 0, n = 1 + below(4); i < n; ++i)
      out += std::string(i ? "," : "") + (object ? "\"k" + std::to_string(i) + "\" : " : "") + json(depth - 1) + (below(5) ? "" : " \n\t");
    return out + (object ? "}" : "]");
  }

  std::string ubjson(std::size_t depth) {
    static const std::string kValues[] = {"Z",
                                          "T",
                                          std::string("i\0", 2),
                                          "U\xff",
                                          "d1234",
                                          "D12345678",
                                          "SU\3abc",
                                          "Si" + std::string(1, '\0'),
                                          "[]",
                                          "{}",
                                          "N[#i\2TT",
                                          "[$d#U\2abcdefgh",
                                          "[$T#U\7",
                                          "{$U#i\1i\1k\5",
                                          "[$S#i\2i\1ai\1b",
                                          "[$[#i\2]T]"};
    if (depth == 0 || below(4) == 0) return kValues[below(std::size(kValues))];
    const bool object = below(2) == 0, counted = below(2) == 0;
    const std::size_t n = 1 + below(4);
    std::string out = object ? "{" : "[";
    if (counted) out += "#i" + std::string(1, static_cast<char>(n));
    for (std::size_t i = 0; i < n; ++i) out += (object ? "i\1k" : "") + ubjson(depth - 1);
    return out + (counted ? "" : object ? "}" : "]");
  }
};

TEST(TextWalk, AThousandGoodOnesOfEachAreAccepted) {
  Writer writer;
  for (int round = 0; round < 1000; ++round) {
    const std::string json = "[" + writer.json(6) + "]", ubjson = "[" + writer.ubjson(6) + "]";
    transfer::JsonWalk one;
    EXPECT_TRUE(one.feed(json) && one.ended()) << json;
    transfer::UbjsonWalk other;
    EXPECT_TRUE(other.feed(ubjson) && other.ended()) << ubjson;
    transfer::JsonWalk cut;
    (void)cut.feed(std::string_view(json).substr(0, writer.below(json.size())));
    EXPECT_FALSE(cut.ended());
    transfer::UbjsonWalk short_one;
    (void)short_one.feed(std::string_view(ubjson).substr(0, writer.below(ubjson.size())));
    EXPECT_FALSE(short_one.ended());
  }
}

TEST(TextWalk, WhatIsNoJsonIsRefused) {
  for (const char* bad : {"[1,]",       "[,1]", "{\"a\"}", "{\"a\":}",   "{a:1}",         "[01]",  "[1.]",    "[.5]",
                          "[+1]",       "[1e]", "[tru]",   "[\"\\x\"]",  "[\"\\u12g4\"]", "[1 2]", "[1}",     "{\"a\":1]",
                          "[\"a\nb\"]", "[1]]", "[@]",     "{\"a\":1,}", "{,}",           "[--1]", "[1\"a\"]"}) {
    transfer::JsonWalk walk;
    EXPECT_FALSE(walk.feed(bad) && walk.ended()) << bad;
  }
  transfer::JsonWalk deep;
  EXPECT_FALSE(deep.feed(std::string(transfer::kWalkDepth + 1, '[')));
}

TEST(TextWalk, WhatIsNoUbjsonIsRefused) {
  const std::string most = "[$D#L\x7f" + std::string(7, '\xff');  // more bytes than there are numbers
  for (const std::string& bad :
       {std::string("[x]"), std::string("{T}"), std::string("[$x#i\1"), std::string("[$di\1"), std::string("[#S\1a"),
        std::string("[#i\xff"), std::string("Si\xff"), std::string("[}"), std::string("{i\1k]"), most}) {
    transfer::UbjsonWalk walk;
    EXPECT_FALSE(walk.feed(bad)) << bad;
  }
  transfer::UbjsonWalk deep;
  EXPECT_FALSE(deep.feed(std::string(transfer::kWalkDepth + 1, '[')));
  transfer::UbjsonWalk many;  // values without bytes, as many as a number can say
  EXPECT_TRUE(many.feed("[$T#L\x7f" + std::string(7, '\xff')) && many.ended());
}

}  // namespace
}  // namespace dtrain::test
