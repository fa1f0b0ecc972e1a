// TensorFlow's bundles, and the file `checkpoint` beside them.
#include <algorithm>

#include "common/transfer/format.h"
#include "common/transfer/leveldb_table.h"
#include "common/transfer/manifest.h"
#include "common/transfer/selection.h"
#include "common/transfer/tf_bundle.h"
#include "common/transfer/tf_checkpoint_state.h"

namespace dtrain::transfer {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

class TensorCheck : public PartCheck {
 public:
  explicit TensorCheck(const BundleEntry& entry) : check_(entry) {}
  void feed(std::string_view bytes) override { check_.feed(bytes); }
  bool finish() override { return check_.finish(); }

 private:
  BundleEntryCheck check_;
};

class BundleContents : public Contents {
 public:
  BundleContents(BundleIndex index, std::string_view base) : index_(std::move(index)) {
    step = bundle_step(base);
    for (std::uint32_t shard = 0; shard < index_.shards; ++shard)
      files.push_back({bundle_data_name(base, shard, index_.shards), index_.shard_bytes[shard], false});
  }
  std::size_t part_count() const override { return index_.entries.size(); }
  Part part(std::size_t i) const override {
    const BundleEntry& entry = index_.entries[i];
    return {files[entry.shard].name, entry.offset, entry.size, false};
  }
  std::unique_ptr<PartCheck> check(std::size_t i) const override { return std::make_unique<TensorCheck>(index_.entries[i]); }
  std::string damage(std::size_t i) const override {
    return ": tensor " + index_.entries[i].name + " has another checksum than the index says";
  }

 private:
  const BundleIndex index_;
};

Result<std::unique_ptr<Contents>> parse_index(std::string_view bytes, std::string_view base) {
  auto index = parse_bundle_index(bytes);
  if (!index) return fail(std::move(index.error()));
  return std::make_unique<BundleContents>(std::move(*index), base);
}

bool has_data(const std::vector<std::string>& names, const std::string& base) {
  const auto at = std::lower_bound(names.begin(), names.end(), base + ".data-");
  return at != names.end() && is_bundle_data_file(*at, base);
}

// Files of other programs may end in .index: without data files it must look like a table.
std::vector<Found> find(const std::vector<std::string>& names) {
  std::vector<Found> found;
  for (const std::string& name : names) {
    std::string base(bundle_prefix_of_index(name));
    if (base.empty() || is_ignored_name(base)) continue;
    const bool surely = has_data(names, base);
    found.push_back({std::move(base), surely});
  }
  return found;
}

std::vector<std::string> mentioned(std::string_view text, std::string_view directory) {
  std::vector<std::string> below;
  const auto state = parse_checkpoint_state(text);
  if (!state) return below;
  auto paths = state->all_model_checkpoint_paths;
  paths.push_back(state->model_checkpoint_path);
  const std::string inside = resolve_state_path(directory, "") + "/";
  for (const auto& path : paths) {
    const std::string resolved = resolve_state_path(directory, path);
    if (!resolved.starts_with(inside)) continue;
    std::string relative = resolved.substr(inside.size());
    if (relative.find('/') == std::string::npos || !is_inner_name(relative) || is_ignored_name(relative)) continue;
    below.push_back(std::move(relative));
  }
  return below;
}

std::optional<std::string> without(std::string_view text, std::string_view home, std::string_view removed, std::string_view successor) {
  auto state = parse_checkpoint_state(text);
  if (!state || !drop_from_state(*state, home, removed, successor)) return std::nullopt;
  return state->model_checkpoint_path.empty() ? std::string() : render_checkpoint_state(*state);
}

// The newest comes last, as TensorFlow writes it.
std::optional<std::string> with(std::string_view text, const std::string& home, const std::string& relative, std::int64_t changed_ns,
                                bool only_first) {
  CheckpointState state = parse_checkpoint_state(text).value_or(CheckpointState{});  // a text that cannot be parsed is no hint
  if (only_first && !state.model_checkpoint_path.empty()) return std::nullopt;
  const bool absolute = state.model_checkpoint_path.starts_with('/');
  auto& paths = state.all_model_checkpoint_paths;
  auto& times = state.all_model_checkpoint_timestamps;
  const bool timed = times.size() == paths.size() && (!paths.empty() || state.model_checkpoint_path.empty());
  (void)drop_from_state(state, home, home + "/" + relative, "");
  if (paths.size() >= kCheckpointStatePaths) {  // otherwise no reader would accept it
    paths.erase(paths.begin());
    if (!times.empty()) times.erase(times.begin());
  }
  state.model_checkpoint_path = absolute ? home + "/" + relative : relative;
  paths.push_back(state.model_checkpoint_path);
  if (timed) times.push_back(std::to_string(changed_ns / kNanoseconds));
  else times.clear();
  return render_checkpoint_state(state);
}

constexpr Hint kHint{
    .name = kCheckpointStateName, .bytes = kCheckpointStateBytes, .mentioned = mentioned, .without = without, .with = with};

}  // namespace

extern const Format kTensorflowFormat{
    .name = "tensorflow",
    .seen_as = "NAME.index with NAME.data-...",
    .named_as = "a TensorFlow prefix",
    .directory = false,
    .contents_name = bundle_index_name,
    .contents_bytes = kBundleIndexBytes,
    .parse = parse_index,
    .is_file_of = [](std::string_view name, std::string_view base) { return is_inner_name(name) && is_bundle_file(name, base); },
    .find = find,
    .may_be = has_table_magic,
    .base_of = bundle_prefix_of_index,
    .step_of = bundle_step,
    .optional_file = [](std::string_view base) { return std::string(base) + ".meta"; },
    .hint = &kHint,
};

}  // namespace dtrain::transfer
