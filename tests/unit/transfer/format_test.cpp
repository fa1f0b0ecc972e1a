// The table of formats, and what each says by names and bytes alone; on a disk: tests/unit/store/checkpoint_*.
#include "common/transfer/format.h"

#include <gtest/gtest.h>

#include <set>

#include "common/transfer/digest.h"
#include "common/transfer/manifest.h"
#include "common/transfer/tf_bundle.h"
#include "tests/unit/transfer/bundle_writer.h"

namespace dtrain::transfer {
namespace {

const Format& format(const std::string& name) {
  for (const Format* known : formats())
    if (known->name == name) return *known;
  ADD_FAILURE() << "no format " << name;
  return *formats().front();
}

std::string sha256_of(const std::string& bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.finish_hex();
}

// Does the part verify with these bytes of its file?
bool verifies(const Contents& contents, std::size_t part, const std::string& file) {
  const auto check = contents.check(part);
  const Part where = contents.part(part);
  const std::string bytes = file.substr(where.offset, where.size);
  for (const char c : bytes) check->feed(std::string_view(&c, 1));
  return check->finish();
}

TEST(Formats, KeepTheirNumbers) {
  const std::vector<std::string> stored = {"manifest", "tensorflow", "torch",     "safetensors", "huggingface", "torch-distributed",
                                           "numpy",    "keras",      "deepspeed", "megatron",    "orbax",       "hdf5",
                                           "xgboost"};  // by the number in every record
  ASSERT_GE(formats().size(), stored.size());
  EXPECT_EQ(static_cast<std::size_t>(enum_last(FormatId{})) + 1, formats().size());
  for (std::size_t i = 0; i < stored.size(); ++i) EXPECT_EQ(format_of(FormatId(i)).name, stored[i]);
  EXPECT_EQ(format_of(CheckpointInfo{}.format).name, "manifest");
  // Older programs know the first two.
  for (std::size_t i = 0; i < formats().size(); ++i) EXPECT_EQ(since_version(FormatId(i)), i < 2 ? 1u : 3u);
}

// A base that this format could have, with everything that its table needs.
std::string some_base(const Format& f) {
  for (const char* ending : {"", ".pt", ".safetensors", ".npz", ".keras", ".h5", ".ubj"})
    if (const std::string base = std::string("p") + ending; f.directory || f.base_of(f.contents_name(base)) == base) return base;
  return "";
}

TEST(Formats, EveryLineIsWhole) {
  std::set<std::string_view> names;
  for (const Format* f : formats()) {
    SCOPED_TRACE(f->name);
    EXPECT_TRUE(names.insert(f->name).second);
    EXPECT_FALSE(f->name.empty() || f->seen_as.empty() || f->named_as.empty());
    EXPECT_NE(f->name, "auto");
    EXPECT_GT(f->contents_bytes, 0u);
    const std::string base = some_base(*f), contents = f->contents_name(base);
    EXPECT_TRUE(is_inner_name(contents));
    EXPECT_TRUE(f->is_file_of(contents, base));
    EXPECT_FALSE(f->is_file_of("../" + base, base));
    for (const char* junk : {"", "{", "\x01\x02"}) EXPECT_FALSE(f->parse(junk, base)) << junk;
    EXPECT_TRUE(f->optional_file(base).empty() || f->is_file_of(f->optional_file(base), base));
    if (f->directory) continue;
    EXPECT_EQ(f->base_of(contents), base);
    const auto found = f->find({contents});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].base, base);
    EXPECT_FALSE(f->is_file_of("other" + contents, base));
    EXPECT_FALSE(f->table != nullptr && found[0].surely) << "such files may be another program's";
  }
}

TEST(Formats, ManifestNamesFilesAndDigests) {
  const std::string w = "weights", b = "bias";
  const auto parsed = format("manifest")
                          .parse("{\"version\":1,\"step\":12,\"files\":[{\"name\":\"w\",\"size\":7,\"sha256\":\"" + sha256_of(w) +
                                     "\"},{\"name\":\"d/b\",\"size\":4,\"sha256\":\"" + sha256_of(b) + "\"}]}",
                                 "step-12");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Contents& contents = **parsed;
  EXPECT_EQ(contents.step, 12);
  ASSERT_EQ(contents.files.size(), 2u);
  EXPECT_EQ(contents.files[1].name, "d/b");
  EXPECT_EQ(contents.files[1].size, 4u);
  EXPECT_TRUE(contents.files[1].exactly);
  ASSERT_EQ(contents.part_count(), 2u);
  EXPECT_TRUE(contents.part(0).whole);
  EXPECT_TRUE(verifies(contents, 0, w));
  EXPECT_TRUE(verifies(contents, 1, b));
  EXPECT_FALSE(verifies(contents, 1, "bias"[0] + std::string("IAS")));
  EXPECT_TRUE(format("manifest").directory);
  EXPECT_EQ(format("manifest").hint, nullptr);
}

TEST(Formats, BundleNamesShardsAndTensors) {
  const test::Bundle bundle = test::write_bundle(
      {{.name = "w", .shape = {4}, .bytes = std::string(16, 'w')}, {.name = "b", .shape = {2}, .bytes = std::string(8, 'b'), .shard = 1}},
      3);
  const Format& tensorflow = format("tensorflow");
  EXPECT_TRUE(tensorflow.may_be(bundle.index));
  EXPECT_FALSE(tensorflow.may_be("index of another program"));
  const auto parsed = tensorflow.parse(bundle.index, "model-7");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const Contents& contents = **parsed;
  EXPECT_EQ(contents.step, 7);
  EXPECT_EQ(tensorflow.step_of("model-7"), 7);
  ASSERT_EQ(contents.files.size(), 3u);  // the last holds no tensor and has to be there all the same
  EXPECT_EQ(contents.files[2].name, "model-7.data-00002-of-00003");
  EXPECT_FALSE(contents.files[0].exactly);
  ASSERT_EQ(contents.part_count(), 2u);
  EXPECT_EQ(contents.part(1).file, "model-7.data-00001-of-00003");
  for (const std::size_t part : {0u, 1u}) {
    EXPECT_FALSE(contents.part(part).whole);
    EXPECT_TRUE(verifies(contents, part, bundle.shards[part]));
    std::string flipped = bundle.shards[part];
    flipped[contents.part(part).offset] ^= 1;
    EXPECT_FALSE(verifies(contents, part, flipped));
  }
  EXPECT_EQ(contents.damage(1), ": tensor b has another checksum than the index says");
}

TEST(Formats, BundlesAreFoundByTheirIndexes) {
  const auto found =
      format("tensorflow")
          .find({"a.data-00000-of-00001", "a.index", "b.index", "c.index.tmp", "d.quarantined-1.index", "e.data-00000-of-00001"});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].base, "a");
  EXPECT_TRUE(found[0].surely);
  EXPECT_EQ(found[1].base, "b");
  EXPECT_FALSE(found[1].surely);
}

TEST(Formats, HintNamesTheNewest) {
  const Hint& hint = *format("tensorflow").hint;
  EXPECT_EQ(
      hint.mentioned("model_checkpoint_path: \"sub/m-2\"\nall_model_checkpoint_paths: \"m-1\"\nall_model_checkpoint_paths: \"/other/m-3\"\n"
                     "all_model_checkpoint_paths: \"/d/x/../../m\"\n",
                     "/d"),
      std::vector<std::string>{"sub/m-2"});
  EXPECT_TRUE(hint.mentioned("junk", "/d").empty());

  const std::string two = "model_checkpoint_path: \"m-2\"\nall_model_checkpoint_paths: \"m-1\"\nall_model_checkpoint_paths: \"m-2\"\n";
  EXPECT_EQ(hint.without(two, "/d", "/d/m-2", "/d/m-1"), "model_checkpoint_path: \"m-1\"\nall_model_checkpoint_paths: \"m-1\"\n");
  EXPECT_EQ(hint.without(two, "/d", "/d/m-2", ""), "");
  EXPECT_EQ(hint.without(two, "/d", "/d/m-9", "/d/m-1"), std::nullopt);
  EXPECT_EQ(hint.without("junk", "/d", "/d/m-2", ""), std::nullopt);

  const std::string one = "model_checkpoint_path: \"m-1\"\nall_model_checkpoint_paths: \"m-1\"\nall_model_checkpoint_timestamps: 5\n";
  EXPECT_EQ(hint.with("", "/d", "m-1", 5'999'999'999, false), one);
  EXPECT_EQ(hint.with("junk", "/d", "m-1", 5'000'000'000, true), one);
  EXPECT_EQ(hint.with(one, "/d", "m-2", 0, true), std::nullopt);
  EXPECT_EQ(hint.with(two, "/d", "m-1", 0, false),
            "model_checkpoint_path: \"m-1\"\nall_model_checkpoint_paths: \"m-2\"\nall_model_checkpoint_paths: \"m-1\"\n");
}

}  // namespace
}  // namespace dtrain::transfer
