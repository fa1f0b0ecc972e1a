// Zips and safetensors, cut and flipped everywhere. What cannot be shown by a format is counted, and must be harmless.
#include "tests/unit/transfer/saved_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/transfer/safetensors.h"
#include "common/transfer/zip_check.h"

namespace dtrain::test {
namespace {

using transfer::Format;

struct Tally {
  int caught = 0, not_provable = 0;
};

bool holds(const Format& format, const std::string& base, const std::string& bytes) {
  FilesInMemory files(base, bytes);
  return verify_in_memory(format, files, base).has_value();
}

ErrorCode code_of(const Format& format, const std::string& base, const std::string& bytes) {
  FilesInMemory files(base, bytes);
  const Status status = verify_in_memory(format, files, base);
  return status ? ErrorCode::internal : status.error().code;
}

// `must(at)`: a flip of this byte has to be caught.
template <class Must>
Tally flip_every_bit(const Format& format, const std::string& base, const std::string& good, const Must& must) {
  Tally tally;
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    if (!holds(format, base, flipped)) {
      ++tally.caught;
      continue;
    }
    ++tally.not_provable;
    EXPECT_FALSE(must(bit / 8)) << base << ": bit " << bit;
  }
  return tally;
}

void cut_everywhere(const Format& format, const std::string& base, const std::string& good) {
  ASSERT_TRUE(holds(format, base, good));
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(holds(format, base, good.substr(0, size))) << base << " cut to " << size;
  EXPECT_FALSE(holds(format, base, good + "x"));
}

std::vector<ZipShape> shapes() {
  return {torch_shape(),
          numpy_shape(),
          {},
          {.packed = true},
          {.descriptor = true, .packed = true, .align = 16},
          {.zip64_local = true, .zip64_end = true, .packed = true, .comment = "of PK\5\6 and more"}};
}

const Members kMembers{
    {"archive/data.pkl", "pickle"}, {"archive/data/0", std::string(70, 'w') + "eights"}, {"archive/data/1", ""}, {"w.npy", "b"}};

TEST(SavedZip, EveryCutIsFoundAndEveryFlipInData) {
  Tally all;
  for (const ZipShape& shape : shapes()) {
    const ZipBytes zip = write_zip(kMembers, shape);
    cut_everywhere(format_named("torch"), "ckpt_1.pt", zip.bytes);
    const Tally tally = flip_every_bit(format_named("torch"), "ckpt_1.pt", zip.bytes, [&](std::size_t at) {
      // Other deflated bytes may unpack to the same.
      return !shape.packed && std::ranges::any_of(zip.data, [&](const auto& range) { return at >= range.first && at < range.second; });
    });
    all.caught += tally.caught;
    all.not_provable += tally.not_provable;
  }
  // Times, versions, padding and comments have no checksum and no effect.
  EXPECT_GT(all.caught, 3 * all.not_provable);
  RecordProperty("caught", all.caught);
  RecordProperty("not_provable", all.not_provable);
}

TEST(SavedZip, CutOneIsNotFinishedAndAnotherFileIsNoZip) {
  const Format& torch = format_named("torch");
  const std::string good = torch_file();
  EXPECT_EQ(code_of(torch, "p.pt", good.substr(0, good.size() / 2)), ErrorCode::damaged);
  EXPECT_EQ(code_of(torch, "p.pt", good.substr(0, 2)), ErrorCode::damaged);
  for (const std::string& other : {std::string(), std::string("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), std::string("some text")})
    EXPECT_EQ(code_of(torch, "p.pt", other), ErrorCode::refused) << other;
  FilesInMemory legacy("p.pt", "\x80\2.");
  EXPECT_NE(torch.table(legacy, "p.pt").error().message.find("bare pickle"), std::string::npos);
  // A zip whose bytes hold another zip ends where it ends.
  const std::string outer = write_zip({{"a/data.pkl", torch_file()}}, torch_shape()).bytes;
  cut_everywhere(torch, "p.pt", outer);
}

TEST(SavedZip, WithoutChecksumsOnlyItsStructureIsProved) {
  ZipShape shape = torch_shape();
  shape.crc = false;
  const Format& torch = format_named("torch");
  const std::string bytes = torch_file("weights", shape);
  cut_everywhere(torch, "p.pt", bytes);
  std::string flipped = bytes;
  flipped[flipped.find("weights")] = 'W';
  EXPECT_TRUE(holds(torch, "p.pt", flipped));
}

TEST(SavedZip, WhatIsNotSupportedIsRefusedAndNotDamaged) {
  const Format& torch = format_named("torch");
  const std::string good = torch_file();
  const std::size_t entry = good.find("PK\1\2");
  std::string encrypted = good, packed = good;
  encrypted[entry + 8] = 9;
  packed[entry + 10] = 93;
  EXPECT_EQ(code_of(torch, "p.pt", encrypted), ErrorCode::refused);
  EXPECT_EQ(code_of(torch, "p.pt", packed), ErrorCode::refused);
}

// A deflated member that claims less than it has, or more, or goes on after its end.
TEST(SavedZip, UnpackedBytesAreBoundedByWhatIsClaimed) {
  const std::string zeros(300'000, '\0');
  const Format& torch = format_named("torch");
  const ZipBytes good = write_zip({{"a/data.pkl", zeros}}, {.packed = true});
  ASSERT_TRUE(holds(torch, "p.pt", good.bytes));
  FilesInMemory files("p.pt", good.bytes);
  const auto contents = torch.parse(*torch.table(files, "p.pt"), "p.pt");
  ASSERT_TRUE(contents);
  EXPECT_GT((*contents)->part(0).cost, 100u);
  const std::size_t entry = good.bytes.find("PK\1\2");
  for (const std::uint64_t claimed : {std::uint64_t{0}, zeros.size() - 1, zeros.size() + 1, std::uint64_t{0xffff'fffe}}) {
    std::string bad = good.bytes;
    for (const std::size_t at : {entry + 24, std::size_t{22}}) bad.replace(at, 4, le(claimed, 4));
    EXPECT_EQ(code_of(torch, "p.pt", bad), ErrorCode::damaged) << claimed;
  }
}

// Beyond 4 GiB: nothing but the directory is made.
TEST(SavedZip, DirectoryMayLieFarAway) {
  const std::uint64_t far = 9'000'000'000;
  const std::string wide = le(1, 2) + le(24, 2) + le(far - 100, 8) + le(far - 100, 8) + le(0, 8);
  const std::string entry = "PK\1\2" + le(45, 2) + le(45, 2) + le(0, 4) + le(0, 4) + le(7, 4) + std::string(8, '\xff') + le(1, 2) +
                            le(wide.size(), 2) + std::string(10, '\0') + std::string(4, '\xff') + "w" + wide;
  const std::string end64 =
      "PK\6\6" + le(44, 8) + le(45, 2) + le(45, 2) + std::string(8, '\0') + le(1, 8) + le(1, 8) + le(entry.size(), 8) + le(far, 8);
  const std::string tail = entry + end64 + "PK\6\7" + le(0, 4) + le(far + entry.size(), 8) + le(1, 4) + "PK\5\6" + std::string(4, '\0') +
                           le(1, 2) + le(1, 2) + le(entry.size(), 4) + std::string(4, '\xff') + le(0, 2);
  const auto directory = transfer::parse_zip_table(le(0, 8) + le(far + tail.size(), 8) + tail);
  ASSERT_TRUE(directory) << directory.error().message;
  ASSERT_EQ(directory->members.size(), 1u);
  EXPECT_EQ(directory->members[0].size, far - 100);
  EXPECT_EQ(directory->members[0].end, far);
  EXPECT_FALSE(transfer::parse_zip_table(le(0, 8) + le(far + tail.size() - 1, 8) + tail));
}

TEST(SavedZip, HoweverItIsFedTheVerdictIsTheSame) {
  for (const ZipShape& shape : shapes()) {
    FilesInMemory files("p.pt", write_zip(kMembers, shape).bytes);
    for (const std::size_t step : {1u, 7u, 64u}) EXPECT_TRUE(verify_in_memory(format_named("torch"), files, "p.pt", step));
  }
}

TEST(SavedTensors, EveryCutIsFoundAndEveryFlipOfAPlace) {
  const Format& safetensors = format_named("safetensors");
  const std::string good = safetensors_file({{"a", "weights"}, {"empty", ""}, {"b", "biases"}});
  cut_everywhere(safetensors, "step-1.safetensors", good);
  const std::size_t first = good.find("shape");
  const Tally tally = flip_every_bit(safetensors, "step-1.safetensors", good, [&](std::size_t at) {
    return at < 8 || (at >= first && at < good.find(']', first));  // the length of the header; shape of the first tensor
  });
  RecordProperty("caught", tally.caught);
  RecordProperty("not_provable", tally.not_provable);
  EXPECT_GT(tally.caught, 8 * 60);
  EXPECT_GE(tally.not_provable, 8 * 13) << "no checksum covers the tensors";
}

TEST(SavedTensors, HeaderCoversAllBytesOnce) {
  const auto file = [](const std::string& header, std::size_t bytes) { return le(header.size(), 8) + header + std::string(bytes, 't'); };
  const Format& safetensors = format_named("safetensors");
  const auto one = [](const char* dtype, const char* shape, int begin, int end) {
    return std::string("{\"dtype\":\"") + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(begin) + "," +
           std::to_string(end) + "]}";
  };
  EXPECT_TRUE(holds(safetensors, "p.safetensors", file("{}", 0)));
  EXPECT_TRUE(
      holds(safetensors, "p.safetensors", file("{\"a\":" + one("F32", "2,2", 0, 16) + ",\"b\":" + one("F4", "4", 16, 18) + "}  ", 18)));
  EXPECT_TRUE(holds(safetensors, "p.safetensors", file("{\"b\":" + one("BF16", "1", 4, 6) + ",\"a\":" + one("NEW", "9", 0, 4) + "}", 6)));
  EXPECT_TRUE(holds(safetensors, "p.safetensors", file("{\"a\":" + one("I64", "", 0, 8) + "}", 8)));
  for (const std::string& header :
       {"{\"a\":" + one("F32", "2,2", 0, 15) + "}", "{\"a\":" + one("U8", "4", 0, 4) + ",\"b\":" + one("U8", "4", 2, 6) + "}",
        "{\"a\":" + one("U8", "4", 0, 4) + ",\"b\":" + one("U8", "4", 6, 10) + "}", "{\"a\":" + one("U8", "4", 2, 6) + "}",
        "{\"a\":" + one("U8", "4", 0, 4) + ",\"a\":" + one("U8", "4", 4, 8) + "}",
        "{\"a\":" + one("U64", "4294967296,4294967296", 0, 0) + "}", "[" + one("U8", "4", 0, 4) + "]", std::string("{\"a\":4}"),
        std::string("{\"a\":{\"dtype\":\"U8\"}}"), std::string(" {}"), "{\"a\":" + one("U8", "-4", 0, 4) + "}",
        "{\"a\":" + one("U8", "[4]", 0, 4) + "}", std::string("{\"a\":") + std::string(99, '[')})
    for (const std::size_t bytes : {0u, 4u, 6u, 8u, 10u, 15u, 16u})
      EXPECT_FALSE(holds(safetensors, "p.safetensors", file(header, bytes))) << header;
  EXPECT_FALSE(holds(safetensors, "p.safetensors", le(~0ull, 8) + "{}"));
}

TEST(SavedTensors, AnotherStepHasAnotherTable) {
  FilesInMemory one("p", safetensors_file({{"w", std::string(500'000, 'a')}})),
      other("p", safetensors_file({{"w", std::string(500'000, 'b')}}));
  EXPECT_NE(*transfer::read_safetensors_table(one, "p"), *transfer::read_safetensors_table(other, "p"));
  EXPECT_EQ(transfer::read_safetensors_table(one, "p")->size(), one.files["p"].size() - 500'000 + 8 + 16 * 4096);
}

// Good ones of varied shapes: none is refused. Then one cut and one flip of each, at random places.
TEST(SavedFiles, AThousandGoodOnesAreAllAccepted) {
  std::mt19937 random(20261127);
  const auto below = [&](std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random); };
  int flips_caught = 0, not_provable = 0;
  for (int round = 0; round < 1000; ++round) {
    Members members;
    for (std::size_t i = 0, n = below(9); i < n; ++i) {
      std::string bytes(below(4) ? below(400) : below(90'000), '\0');
      if (below(3)) std::ranges::generate(bytes, [&] { return static_cast<char>(random()); });
      members.emplace_back("archive/data/" + std::to_string(i), std::move(bytes));
    }
    ZipShape shape{.descriptor = below(2) == 0, .zip64_end = below(2) == 0, .packed = below(2) == 0, .align = below(3) * 32};
    shape.zip64_local = !shape.descriptor && below(2) == 0;
    if (below(5) == 0) shape.comment = std::string(below(3000), 'c');
    const bool zip = round % 4 != 0;
    members.emplace_back("archive/data.pkl", "pickle");
    const std::string good = zip ? write_zip(members, shape).bytes : safetensors_file(members);
    const Format& format = format_named(zip ? "torch" : "safetensors");
    FilesInMemory files("p", good);
    const Status status = verify_in_memory(format, files, "p", 1 + below(5000));
    ASSERT_TRUE(status) << round << ": " << status.error().message;
    EXPECT_FALSE(holds(format, "p", good.substr(0, below(good.size())))) << round;
    std::string flipped = good;
    const std::size_t at = below(good.size());
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << below(8));
    ++(holds(format, "p", flipped) ? not_provable : flips_caught);
  }
  RecordProperty("flips_caught", flips_caught);
  RecordProperty("not_provable", not_provable);
  EXPECT_GT(flips_caught, 600);
}

}  // namespace
}  // namespace dtrain::test
