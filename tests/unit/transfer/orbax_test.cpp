// Orbax: the tree of a database is read, so that every cut of a data file is found; values have no checksum.
#include "common/transfer/ocdbt.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/transfer/orbax_writer.h"

namespace dtrain::test {
namespace {

Status verified_orbax(FilesInMemory files, const std::string& base = "100") { return verify_in_memory(format_named("orbax"), files, base); }

std::vector<OcdbtShape> all_shapes() {
  return {{},
          {.packed = false},
          {.per_leaf = 1},
          {.per_leaf = 1, .processes = 3},
          {.packed = false, .per_leaf = 2, .processes = 2, .versions = 4}};
}

bool is_data(const std::string& name) { return name.find("d/aaaa") != std::string::npos; }

TEST(Orbax, EveryCutAndEveryMissingFileIsFound) {
  for (const OcdbtShape& shape : all_shapes()) {
    const FilesInMemory good = orbax_checkpoint("weights", shape);
    const Status whole = verified_orbax(good);
    ASSERT_TRUE(whole) << whole.error().message;
    for (const auto& [name, bytes] : good.files) {
      if (name.ends_with("_sharding")) continue;  // only its size is known
      FilesInMemory less = good;
      less.files.erase(name);
      if (!name.ends_with("/_METADATA")) {
        EXPECT_FALSE(verified_orbax(less)) << name;
      }
      for (std::size_t size = 0; size < bytes.size(); ++size) {
        less.files[name] = bytes.substr(0, size);
        EXPECT_FALSE(verified_orbax(less)) << name << " cut to " << size << " of " << bytes.size();
      }
    }
  }
}

TEST(Orbax, FlipsAreFoundInManifestsAndNodesAndCannotBeInValues) {
  std::mt19937 random(8);
  const FilesInMemory good = orbax_checkpoint("weights", {.per_leaf = 2, .processes = 2});
  int caught = 0, not_provable = 0;
  for (int round = 0; round < 10'000; ++round) {
    FilesInMemory flipped = good;
    auto file = flipped.files.begin();
    std::advance(file, random() % flipped.files.size());
    const std::size_t at = random() % file->second.size();
    file->second[at] = static_cast<char>(file->second[at] ^ 1 << random() % 8);
    if (!verified_orbax(flipped)) {
      ++caught;
      continue;
    }
    ++not_provable;
    const std::string& before = good.files.at(file->first);
    EXPECT_FALSE(file->first.ends_with("manifest.ocdbt")) << at;
    const std::size_t node = before.find("\x0c\xdb\x20\xde");
    EXPECT_FALSE(is_data(file->first) && (node == std::string::npos || at >= node)) << file->first << " " << at;
  }
  RecordProperty("caught", caught);
  RecordProperty("not_provable", not_provable);
  EXPECT_GT(caught, 5000);
}

TEST(Orbax, AThousandGoodOnesAreAllAccepted) {
  std::mt19937 random(9);
  for (int round = 0; round < 1000; ++round) {
    const OcdbtShape shape{random() % 2 == 0, 1 + random() % 5, 1 + random() % 4, 1 + random() % 3};
    Members more;
    for (std::size_t i = 0, n = random() % 12; i < n; ++i)
      more.emplace_back("params.b." + std::string(1, static_cast<char>('a' + i)),
                        std::string(random() % 3 ? random() % 16 : random() % 50'000, 'v'));
    const Status good = verified_orbax(orbax_checkpoint("weights", shape, more), std::to_string(round));
    ASSERT_TRUE(good) << round << ": " << good.error().message;
  }
}

TEST(Orbax, NamesAndSteps) {
  const transfer::Format& orbax = format_named("orbax");
  EXPECT_EQ(orbax.step_of("1200"), 1200);
  EXPECT_EQ(orbax.step_of("checkpoint_1200"), 1200);
  EXPECT_TRUE(orbax.named_clearly("1200") && orbax.named_clearly("step_7"));
  EXPECT_FALSE(orbax.named_clearly("data") || orbax.named_clearly("1200.orbax-checkpoint-tmp-17") || orbax.named_clearly(""));
  const Status unfinished = verified_orbax(orbax_checkpoint("w"), "1200.orbax-checkpoint-tmp-17");
  ASSERT_FALSE(unfinished);
  EXPECT_EQ(unfinished.error().code, ErrorCode::refused);
}

TEST(Orbax, DatabaseThatIsMissingOrLeadsElsewhere) {
  FilesInMemory without = orbax_checkpoint("w");
  without.files.erase("default/manifest.ocdbt");
  EXPECT_NE(verified_orbax(without).error().message.find("no manifest.ocdbt"), std::string::npos);
  FilesInMemory alone;
  alone.files["_CHECKPOINT_METADATA"] = "{}";
  EXPECT_FALSE(verified_orbax(alone));
  // Arrays without a database: only sizes are known.
  alone.files["params/w/0.0"] = "zarr";
  EXPECT_TRUE(verified_orbax(alone));
  FilesInMemory elsewhere;
  transfer::LeastBytes least;
  OcdbtWriter(elsewhere, "", {.packed = false}).write({{"k", std::string(40, 'v')}});
  ASSERT_TRUE(transfer::read_ocdbt(elsewhere, "", least));
  EXPECT_EQ(least.size(), 1u);
  std::string& manifest = elsewhere.files["manifest.ocdbt"];
  manifest.replace(manifest.find("d/aaa"), 5, "../aa");
  manifest.resize(manifest.size() - 4);
  manifest += le(plain_crc32c(manifest), 4);
  EXPECT_EQ(transfer::read_ocdbt(elsewhere, "", least).error().code, ErrorCode::damaged);
}

// 200 MB of zeros, packed into little: what a node may become is bounded.
TEST(Orbax, NodeThatUnpacksToTooMuchIsRefused) {
  FilesInMemory files;
  std::string packed(ZSTD_compressBound(200 << 20), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), std::string(200 << 20, '\0').data(), 200 << 20, 1));
  std::string bytes = std::string("\0\1", 2) + packed;
  bytes = "\x0c\xdb\x3a\x2a" + le(bytes.size() + 16, 8) + bytes;
  files.files["manifest.ocdbt"] = bytes + le(plain_crc32c(bytes), 4);
  transfer::LeastBytes least;
  EXPECT_NE(transfer::read_ocdbt(files, "", least).error().message.find("too large"), std::string::npos);
}

}  // namespace
}  // namespace dtrain::test
