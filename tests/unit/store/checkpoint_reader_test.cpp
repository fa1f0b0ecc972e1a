#include "agent/store/checkpoint_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "agent/store/checkpoint_changes.h"
#include "agent/store/checkpoint_copy.h"
#include "common/job/names.h"
#include "common/transfer/format.h"
#include "common/transfer/manifest.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

using store::verify;

class CheckpointReader : public CheckpointWorld {};

TEST_F(CheckpointReader, DirectoryThatDoesNotExistHoldsNone) {
  spec_.dir = root_ + "/never";
  EXPECT_TRUE(scan().empty());
}

TEST_F(CheckpointReader, FileInPlaceOfTheDirectoryIsAnError) {
  spec_.dir = root_ + "/file";
  write(spec_.dir, "x");
  const auto found = store::scan(spec_);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find(spec_.dir), std::string::npos);
}

TEST_F(CheckpointReader, FindsBothFormatsNewestFirst) {
  manifest_checkpoint(100);
  manifest_checkpoint(300);
  bundle_checkpoint(200);
  const auto found = scan();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].step, 300);
  EXPECT_EQ(found[1].step, 200);
  EXPECT_EQ(transfer::format_of(found[1].format).name, "tensorflow");
  EXPECT_EQ(found[1].path, dir_ + "/model.ckpt-200");
  EXPECT_EQ(found[2].step, 100);
  for (const auto& info : found) {
    EXPECT_TRUE(info.complete) << info.defect;
    EXPECT_TRUE(verify(info)) << verify(info).error().text();
    EXPECT_FALSE(info.digest.empty());
    EXPECT_GT(info.bytes, 0u);
  }
}

TEST_F(CheckpointReader, FormatLimitsWhatIsFound) {
  manifest_checkpoint(1);
  bundle_checkpoint(2);
  spec_.format = *job::from_word<job::CheckpointFormat>("manifest");
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_EQ(scan()[0].step, 1);
  spec_.format = *job::from_word<job::CheckpointFormat>("tensorflow");
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_EQ(scan()[0].step, 2);
}

TEST_F(CheckpointReader, DirectoryItselfMayBeTheCheckpoint) {
  write_manifest_checkpoint(dir_, 5, {{"sub/w.bin", "w"}});
  const auto found = scan();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path, dir_);
  EXPECT_TRUE(verify(found[0]));
}

TEST_F(CheckpointReader, IgnoresUnfinishedAndQuarantinedNames) {
  write_manifest_checkpoint(dir_ + "/step-1.tmp", 1, {{"w", "w"}});
  write_manifest_checkpoint(dir_ + "/step-2.quarantined-1", 2, {{"w", "w"}});
  write(dir_ + "/step-3/MANIFEST.json.tmp", manifest_of(3, {}));
  write(dir_ + "/vocabulary.index", "not a bundle");
  write(dir_ + "/.index", "");
  EXPECT_TRUE(scan().empty());
}

TEST_F(CheckpointReader, ShallowLookNamesTheDefect) {
  const auto path = manifest_checkpoint(1);
  write(path + "/w.bin", "short");
  auto found = scan();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].complete);
  EXPECT_NE(found[0].defect.find("w.bin has 5 bytes"), std::string::npos) << found[0].defect;
  std::filesystem::remove(path + "/b.bin");
  write(path + "/w.bin", "weights 1");
  EXPECT_EQ(scan()[0].defect, "b.bin is missing");
  EXPECT_EQ(verify(scan()[0]).error().code, ErrorCode::damaged);
}

TEST_F(CheckpointReader, LinksPipesAndDirectoriesAreNoFiles) {
  const std::string secret = root_ + "/secret";
  write(secret, "weights 1");
  for (const int kind : {0, 1, 2}) {
    const auto path = manifest_checkpoint(1);
    std::filesystem::remove(path + "/w.bin");
    if (kind == 0) std::filesystem::create_symlink(secret, path + "/w.bin");
    if (kind == 1) {
      ASSERT_EQ(::mkfifo((path + "/w.bin").c_str(), 0600), 0);
    }
    if (kind == 2) std::filesystem::create_directory(path + "/w.bin");
    const auto found = scan();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_FALSE(found[0].complete);
    const auto verified = verify(found[0]);
    ASSERT_FALSE(verified);
    EXPECT_EQ(verified.error().code, ErrorCode::damaged);
    std::filesystem::remove_all(path);
  }
}

TEST_F(CheckpointReader, LinkedDirectoriesLeadNowhere) {
  write_manifest_checkpoint(root_ + "/elsewhere/step-9", 9, {{"w", "w"}});
  std::filesystem::create_symlink(root_ + "/elsewhere/step-9", dir_ + "/step-9");
  EXPECT_TRUE(scan().empty());
  write_manifest_checkpoint(dir_ + "/step-1", 1, {{"sub/w", "w"}});
  std::filesystem::rename(dir_ + "/step-1/sub", root_ + "/sub");
  std::filesystem::create_symlink(root_ + "/sub", dir_ + "/step-1/sub");
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_FALSE(scan()[0].complete);
}

TEST_F(CheckpointReader, PipeAsManifestDoesNotBlock) {
  std::filesystem::create_directory(dir_ + "/step-1");
  ASSERT_EQ(::mkfifo((dir_ + "/step-1/MANIFEST.json").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((dir_ + "/p.index").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((dir_ + "/checkpoint").c_str(), 0600), 0);
  const auto found = scan();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].complete);
}

TEST_F(CheckpointReader, BundlesBelowAreFoundThroughTheHint) {
  write_bundle_checkpoint(dir_ + "/run/ckpt-4", small_bundle());
  write(dir_ + "/checkpoint", "model_checkpoint_path: \"run/ckpt-4\"\nall_model_checkpoint_paths: \"/etc/passwd\"\n");
  const auto found = scan();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path, dir_ + "/run/ckpt-4");
  EXPECT_EQ(found[0].step, 4);
  EXPECT_TRUE(verify(found[0]));
}

TEST_F(CheckpointReader, DirMayNameOneBundle) {
  spec_.dir = bundle_checkpoint(8);
  ASSERT_EQ(scan().size(), 1u);
  EXPECT_EQ(scan()[0].path, spec_.dir);
}

TEST_F(CheckpointReader, VerifyPathTakesEveryKindOfPath) {
  const auto manifest = manifest_checkpoint(1);
  const auto bundle = bundle_checkpoint(2);
  write(dir_ + "/checkpoint", "model_checkpoint_path: \"model.ckpt-2\"\n");
  for (const auto& path : {manifest, manifest + "/", manifest + "/MANIFEST.json", bundle, bundle + ".index"}) {
    const auto reports = store::verify_path(path);
    ASSERT_TRUE(reports) << reports.error().text();
    ASSERT_EQ(reports->size(), 1u) << path;
    EXPECT_TRUE(reports->front().status) << path;
  }
  for (const auto& path : {dir_, dir_ + "/checkpoint"}) {
    const auto reports = store::verify_path(path);
    ASSERT_TRUE(reports);
    EXPECT_EQ(reports->size(), 2u);
  }
  EXPECT_EQ(store::verify_path(root_ + "/nothing").error().code, ErrorCode::not_found);
}

TEST_F(CheckpointReader, ReplacedSinceItWasFoundIsNotCalledDamaged) {
  const auto path = manifest_checkpoint(1);
  const auto before = scan()[0];
  write_manifest_checkpoint(path, 1, {{"w.bin", "other"}, {"b.bin", "biases"}});
  const auto verified = verify(before);
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().code, ErrorCode::unavailable);
  EXPECT_EQ(store::quarantine(before, dir_).error().code, ErrorCode::unavailable);
  EXPECT_EQ(store::remove(before, dir_).error().code, ErrorCode::unavailable);
  std::filesystem::remove_all(path);
  EXPECT_EQ(verify(before).error().code, ErrorCode::not_found);
}

// ---- every kind of damage, at every place

bool found_good(const job::CheckpointSpec& spec) {
  const auto found = store::scan(spec);
  if (!found) return false;
  for (const auto& info : *found)
    if (info.complete && verify(info)) return true;
  return false;
}

// The checkpoint's files, as written; `check` sees the directory with one of them changed.
template <class Excused>
void damage_everywhere(const std::string& dir, const job::CheckpointSpec& spec, const Excused& excused) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  ASSERT_TRUE(found_good(spec));
  const auto store_file = [](const std::string& path, const std::string& bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << bytes;
  };
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string good{std::istreambuf_iterator<char>(in), {}};
    for (std::size_t size = 0; size < good.size(); ++size) {
      store_file(file, good.substr(0, size));
      EXPECT_FALSE(found_good(spec)) << file << " cut to " << size << " of " << good.size();
    }
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::string flipped = good;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
      if (excused(file, good, flipped)) continue;
      store_file(file, flipped);
      EXPECT_FALSE(found_good(spec)) << file << " with bit " << bit << " flipped";
    }
    store_file(file, good);
  }
  EXPECT_TRUE(found_good(spec));
}

TEST_F(CheckpointReader, EveryCutAndEveryFlippedBitOfABundleIsCaught) {
  bundle_checkpoint(1);
  damage_everywhere(dir_, spec_, [](const auto&, const auto&, const auto&) { return false; });
}

TEST_F(CheckpointReader, EveryCutAndEveryFlippedBitOfAManifestCheckpointIsCaught) {
  const auto path = dir_ + "/latest";
  write_manifest_checkpoint(path, 7, {{"w.bin", "some weights"}, {"sub/b.bin", std::string(1, '\0')}});
  // What the format cannot show: another step, and the case of a hexadecimal digit (which is the same digit).
  damage_everywhere(dir_, spec_, [](const std::string&, const std::string& good, const std::string& flipped) {
    const auto a = transfer::parse_manifest(good), b = transfer::parse_manifest(flipped);
    if (!a || !b || a->files.size() != b->files.size()) return false;
    for (std::size_t i = 0; i < a->files.size(); ++i)
      if (a->files[i].name != b->files[i].name || a->files[i].size != b->files[i].size || a->files[i].sha256 != b->files[i].sha256)
        return false;
    return true;
  });
}

// ---- and no good one refused

TEST_F(CheckpointReader, AThousandGoodOnesAreAllAccepted) {
  std::mt19937 random(20261120);
  const auto below = [&](std::uint32_t bound) { return std::uniform_int_distribution<std::uint32_t>(0, bound - 1)(random); };
  const auto bytes = [&](std::uint32_t size) {
    std::string out(size, '\0');
    for (char& c : out) c = static_cast<char>(below(256));
    return out;
  };
  for (int round = 0; round < 1000; ++round) {
    const std::string path = dir_ + "/good-" + std::to_string(round);
    if (round % 2 == 0) {
      Files files;
      for (std::uint32_t i = 0, n = below(6); i < n; ++i)
        files.emplace_back((below(2) ? "shard/" : "") + std::to_string(i), bytes(below(3) ? below(300) : 0));
      write_manifest_checkpoint(path, below(1000), files);
    } else {
      const std::uint32_t shards = 1 + below(3);
      std::vector<Tensor> tensors;
      for (std::uint32_t i = 0, n = below(20); i < n; ++i) {
        Tensor tensor{.name = "t" + std::to_string(i), .shard = below(shards)};
        const auto kind = below(4);
        if (kind == 0) tensor.dtype = 7;
        if (kind == 1) tensor.dtype = 21;
        if (kind < 2) {
          const auto elements = below(4);
          tensor.shape = {elements};
          for (std::uint32_t e = 0; e < elements; ++e) tensor.elements.push_back(bytes(below(2) * below(200)));
        } else {
          const auto size = below(200);
          tensor.dtype = 4;
          tensor.shape = {size};
          tensor.bytes = bytes(size);
        }
        tensors.push_back(std::move(tensor));
      }
      TableWriter table;
      table.entries_per_block = 1 + static_cast<int>(below(8));
      table.restart_interval = 1 + static_cast<int>(below(4));
      write_bundle_checkpoint(path, write_bundle(tensors, shards, table));
    }
  }
  const auto found = scan();
  EXPECT_EQ(found.size(), 1000u);
  for (const auto& info : found) {
    EXPECT_TRUE(info.complete) << info.path << ": " << info.defect;
    const auto verified = verify(info);
    EXPECT_TRUE(verified) << verified.error().text();
  }
}

// Somebody who may write to the directory, too, puts a link in place of the checkpoint, to something of the user's that looks the same.
TEST_F(CheckpointReader, NothingIsReadThroughALinkBelowTheDirectory) {
  const std::string path = dir_ + "/run/step-1", elsewhere = root_ + "/elsewhere";
  for (const std::string& swapped : {path, dir_ + "/run"}) {
    write_manifest_checkpoint(path, 1, {{"w", "w"}});
    job::CheckpointSpec spec = spec_;
    spec.dir = path;
    const auto found = store::scan(spec, dir_);
    ASSERT_TRUE(found && found->size() == 1) << swapped;
    const transfer::CheckpointInfo info = found->front();
    EXPECT_TRUE(verify(info, dir_));
    EXPECT_TRUE(store::CheckpointSource::open(info, dir_));

    std::filesystem::rename(swapped, elsewhere);
    std::filesystem::create_symlink(elsewhere, swapped);
    const auto again = store::scan(spec, dir_);
    EXPECT_TRUE(!again || again->empty()) << swapped;
    const Status verified = verify(info, dir_);
    ASSERT_FALSE(verified) << swapped;
    EXPECT_EQ(verified.error().code, ErrorCode::unavailable) << verified.error().text();  // nothing is wrong with what was found
    const auto source = store::CheckpointSource::open(info, dir_);
    ASSERT_FALSE(source) << swapped;
    EXPECT_EQ(source.error().code, ErrorCode::not_found) << source.error().text();
    // The job file names it (restore), link or not.
    const auto named = store::scan(spec, path);
    ASSERT_TRUE(named && named->size() == 1) << swapped;
    EXPECT_TRUE(verify(named->front(), path)) << swapped;
    EXPECT_TRUE(store::CheckpointSource::open(named->front(), path)) << swapped;
    std::filesystem::remove(swapped);
    std::filesystem::remove_all(elsewhere);
  }
}

}  // namespace
}  // namespace dtrain::test
