#include "agent/store/checkpoint_reader.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <set>

#include "agent/store/checkpoint_files.h"
#include "common/transfer/digest.h"
#include "common/transfer/leveldb_table.h"
#include "common/transfer/manifest.h"
#include "common/transfer/tf_bundle.h"
#include "common/transfer/tf_checkpoint_state.h"

namespace dtrain::store {
namespace {

using job::CheckpointFormat;
using transfer::Candidate;
using transfer::Format;

const std::string kManifest(transfer::kManifestName);

void add_to_stamp(Candidate& candidate, const std::string& name, const FileFacts& facts) {
  const std::string text = name + '\0' + std::to_string(facts.inode) + ',' + std::to_string(facts.size) + ',' +
                           std::to_string(facts.changed_ns) + ',' + std::to_string(candidate.stamp);
  candidate.stamp = std::hash<std::string>{}(text);
  candidate.changed_ns = std::max(candidate.changed_ns, facts.changed_ns);
}

// The same for every host that sees this directory, and another wherever it is a copy. Never 0.
std::uint64_t place_of(const FileFacts& facts) {
  return ((facts.inode * 0x9e3779b97f4a7c15ull) ^ static_cast<std::uint64_t>(facts.changed_ns)) | 1;
}

// Adds one file that must have `size` bytes, or at least so many. The first thing wrong becomes the defect.
void expect_file(Candidate& candidate, const FileDescriptor& directory, const std::string& name, std::uint64_t size,
                 bool exactly) {
  const auto facts = facts_beneath(directory, name);
  std::string defect;
  if (!facts) {
    defect = facts.error().code == ErrorCode::not_found ? name + " is missing" : facts.error().message;
  } else {
    add_to_stamp(candidate, name, *facts);
    candidate.info.bytes += facts->size;
    if (facts->kind == FileFacts::Kind::link) defect = name + " is a symbolic link";
    else if (facts->kind != FileFacts::Kind::regular) defect = name + " is not a regular file";
    else if (facts->size < size || (exactly && facts->size != size))
      defect = name + " has " + std::to_string(facts->size) + " bytes instead of " + std::to_string(size);
  }
  if (candidate.info.defect.empty()) candidate.info.defect = std::move(defect);
}

// `directory` holds MANIFEST.json. nullopt: it went away meanwhile.
std::optional<Candidate> look_at_manifest(const FileDescriptor& directory, const std::string& path) {
  Candidate candidate;
  candidate.info.format = Format::manifest;
  candidate.info.path = path;
  const auto content = read_beneath(directory, kManifest, transfer::kManifestBytes);
  if (!content) {
    if (content.error().code == ErrorCode::not_found) return std::nullopt;
    candidate.info.defect = content.error().message;
    return candidate;
  }
  add_to_stamp(candidate, kManifest, content->facts);
  candidate.info.bytes = content->facts.size;
  candidate.info.place = place_of(content->facts);
  candidate.info.digest = transfer::blake2b_hex(content->bytes);
  const auto manifest = transfer::parse_manifest(content->bytes);
  if (!manifest) {
    candidate.info.defect = kManifest + ": " + manifest.error().message;
    return candidate;
  }
  candidate.info.step = manifest->step;
  for (const auto& file : manifest->files) expect_file(candidate, directory, file.name, file.size, true);
  candidate.info.complete = candidate.info.defect.empty();
  return candidate;
}

// nullopt: it went away, or is another program's file that happens to end in .index.
std::optional<Candidate> look_at_bundle(const FileDescriptor& directory, const std::string& base,
                                        const std::string& path, bool has_data) {
  Candidate candidate;
  candidate.info.format = Format::tensorflow;
  candidate.info.path = path;
  candidate.info.step = transfer::bundle_step(base);
  const std::string name = transfer::bundle_index_name(base);
  const auto content = read_beneath(directory, name, transfer::kBundleIndexBytes);
  if (!content) {
    if (content.error().code == ErrorCode::not_found || !has_data) return std::nullopt;
    candidate.info.defect = content.error().message;
    return candidate;
  }
  if (!has_data && !transfer::has_table_magic(content->bytes)) return std::nullopt;
  add_to_stamp(candidate, name, content->facts);
  candidate.info.bytes = content->facts.size;
  candidate.info.place = place_of(content->facts);
  candidate.info.digest = transfer::blake2b_hex(content->bytes);
  const auto index = transfer::parse_bundle_index(content->bytes);
  if (!index) {
    candidate.info.defect = name + ": " + index.error().message;
    return candidate;
  }
  for (std::uint32_t shard = 0; shard < index->shards; ++shard)
    expect_file(candidate, directory, transfer::bundle_data_name(base, shard, index->shards),
                index->shard_bytes[shard], false);
  candidate.info.complete = candidate.info.defect.empty();
  return candidate;
}

// One directory's names, as both formats need them.
class Scan {
 public:
  Scan(const FileDescriptor& directory, std::string path, std::vector<std::string> names)
      : directory_(directory), path_(std::move(path)), names_(std::move(names)) {}

  Status find_manifests() {
    if (has(kManifest))
      if (auto added = add(look_at_manifest(directory_, path_)); !added) return added;
    for (const auto& name : names_) {
      if (transfer::is_ignored_name(name)) continue;
      const auto child = open_directory_at(directory_, name);  // what is no directory fails here
      if (!child) continue;
      if (!facts_beneath(*child, kManifest)) continue;
      if (auto added = add(look_at_manifest(*child, inside(name))); !added) return added;
    }
    return {};
  }

  Status find_bundles() {
    for (const auto& name : names_) {
      const std::string base(transfer::bundle_prefix_of_index(name));
      if (base.empty() || transfer::is_ignored_name(base)) continue;
      if (auto added = add(look_at_bundle(directory_, base, inside(base), has_data(base))); !added) return added;
    }
    return find_mentioned_bundles();
  }

  std::vector<Candidate> take() {
    transfer::sort_newest_first(candidates_);
    return std::move(candidates_);
  }

 private:
  std::string inside(const std::string& name) const { return path_ == "/" ? "/" + name : path_ + "/" + name; }
  bool has(const std::string& name) const { return std::binary_search(names_.begin(), names_.end(), name); }
  bool has_data(const std::string& base) const {
    auto at = std::lower_bound(names_.begin(), names_.end(), base + ".data-");
    return at != names_.end() && transfer::is_bundle_data_file(*at, base);
  }
  Status add(std::optional<Candidate> candidate) {
    if (!candidate || !paths_.insert(candidate->info.path).second) return {};
    if (candidates_.size() == kScanCandidates)
      return fail(ErrorCode::limit, "it holds more than " + std::to_string(kScanCandidates) + " checkpoints",
                  "set checkpoint.keep");
    candidates_.push_back(std::move(*candidate));
    return {};
  }

  // Scripts may keep their bundles in directories below; the `checkpoint` file then says where.
  Status find_mentioned_bundles() {
    const std::string state_name(transfer::kCheckpointStateName);
    if (!has(state_name)) return {};
    const auto content = read_beneath(directory_, state_name, transfer::kCheckpointStateBytes);
    const auto state = content ? transfer::parse_checkpoint_state(content->bytes) : fail(content.error());
    if (!state) return {};  // a hint that cannot be read hints at nothing
    auto mentioned = state->all_model_checkpoint_paths;
    mentioned.push_back(state->model_checkpoint_path);
    const std::string below = transfer::resolve_state_path(path_, "") + "/";
    for (const auto& path : mentioned) {
      const std::string resolved = transfer::resolve_state_path(path_, path);
      if (!resolved.starts_with(below)) continue;
      const std::string relative = resolved.substr(below.size());
      if (relative.find('/') == std::string::npos || !transfer::is_inner_name(relative)) continue;
      if (transfer::is_ignored_name(relative)) continue;
      const auto magic_or_data = facts_beneath(directory_, transfer::bundle_index_name(relative)).has_value();
      if (!magic_or_data) continue;
      if (auto added = add(look_at_bundle(directory_, relative, inside(relative), true)); !added) return added;
    }
    return {};
  }

  const FileDescriptor& directory_;
  const std::string path_;
  const std::vector<std::string> names_;   // sorted
  std::vector<Candidate> candidates_;
  std::set<std::string> paths_;
};

tl::unexpected<Error> could_not_scan(const std::string& path, const Error& e) {
  return fail(e.code, "could not look for checkpoints in " + path + ": " + e.message, e.next);
}

// spec.dir may be the prefix of one bundle.
std::vector<Candidate> look_at_prefix(const std::string& path) {
  const auto [parent, base] = split_path(path);
  const auto directory = open_directory(parent);
  std::vector<Candidate> found;
  if (!directory || !facts_beneath(*directory, transfer::bundle_index_name(base))) return found;
  if (auto candidate = look_at_bundle(*directory, base, path, true)) found.push_back(std::move(*candidate));
  return found;
}

}  // namespace

Result<std::vector<Candidate>> look(const job::CheckpointSpec& spec) {
  const std::string path = without_trailing_slashes(spec.dir);
  const auto directory = open_directory(path);
  if (!directory && directory.error().code == ErrorCode::not_found)
    return spec.format == CheckpointFormat::manifest ? std::vector<Candidate>{} : look_at_prefix(path);
  if (!directory) return could_not_scan(path, directory.error());
  auto names = list_names(*directory);
  if (!names) return could_not_scan(path, names.error());
  Scan scan(*directory, path, std::move(*names));
  if (spec.format != CheckpointFormat::tensorflow)
    if (auto found = scan.find_manifests(); !found) return could_not_scan(path, found.error());
  if (spec.format != CheckpointFormat::manifest)
    if (auto found = scan.find_bundles(); !found) return could_not_scan(path, found.error());
  return scan.take();
}

Result<std::vector<transfer::CheckpointInfo>> scan(const job::CheckpointSpec& spec) {
  auto candidates = look(spec);
  if (!candidates) return fail(candidates.error());
  std::vector<transfer::CheckpointInfo> found;
  found.reserve(candidates->size());
  for (auto& candidate : *candidates) found.push_back(std::move(candidate.info));
  return found;
}

std::string unrecognised(const job::CheckpointSpec& spec) {
  static constexpr std::array<std::string_view, 14> kEndings{".bin", ".ckpt", ".h5", ".hdf5", ".keras", ".msgpack", ".npz",
                                                             ".onnx", ".params", ".pkl", ".pt", ".pth", ".safetensors", ".tar"};
  std::size_t count = 0;
  std::string first;
  const auto look_in = [&](const FileDescriptor& directory, const std::string& below) {
    std::vector<std::string> directories;
    for (const std::string& name : list_names(directory).value_or(std::vector<std::string>{})) {
      const bool saved = std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
      if (!saved && !below.empty()) continue;
      const auto facts = facts_beneath(directory, name);
      if (!facts) continue;
      if (facts->kind == FileFacts::Kind::directory && below.empty()) directories.push_back(name);
      if (!saved || facts->kind != FileFacts::Kind::regular) continue;
      if (++count == 1) first = below + name;
    }
    return directories;
  };
  const auto directory = open_directory(without_trailing_slashes(spec.dir));
  if (!directory) return "";
  std::vector<std::string> names = look_in(*directory, "");
  if (names.size() > kForeignDirectories) names.resize(kForeignDirectories);
  for (const std::string& name : names)
    if (const auto child = open_directory_at(*directory, name)) look_in(*child, name + "/");
  if (count == 0) return "";
  return std::to_string(count) + (count == 1 ? " file such as " : " files such as ") + first + " in " + spec.dir +
         ", in no format that is known here, so that nothing is restored from them; known are manifest (a directory with "
         "MANIFEST.json) and tensorflow (NAME.index with NAME.data-...)";
}

Result<std::vector<PathReport>> verify_path(const std::string& path) {
  std::error_code ignored;
  std::string target = without_trailing_slashes(std::filesystem::absolute(path, ignored).lexically_normal().string());
  const auto [parent, base] = split_path(target);
  if (!std::filesystem::is_directory(target, ignored)) {
    if (base == transfer::kManifestName || base == transfer::kCheckpointStateName) target = parent;
    else if (const auto prefix = transfer::bundle_prefix_of_index(base); !prefix.empty())
      target = parent + "/" + std::string(prefix);
  }
  job::CheckpointSpec spec;
  spec.dir = target;
  const auto found = scan(spec);
  if (!found) return fail(found.error());
  if (found->empty())
    return fail(ErrorCode::not_found, "could not verify " + path + ": no checkpoint is there",
                "name a directory with MANIFEST.json, a TensorFlow prefix, or a directory of such");
  std::vector<PathReport> reports;
  for (const auto& info : *found) reports.push_back({info, verify(info)});
  return reports;
}

}  // namespace dtrain::store
