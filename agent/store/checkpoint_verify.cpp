#include "agent/store/checkpoint_verify.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "agent/store/checkpoint_files.h"
#include "common/transfer/digest.h"
#include "common/transfer/manifest.h"
#include "common/transfer/tf_bundle.h"

namespace dtrain::store {
namespace {

using transfer::CheckpointInfo;
using transfer::Format;

constexpr std::size_t kReadBytes = 1 << 20;        // one read()
constexpr std::uint64_t kPartCost = 16 << 10;      // what a file or tensor costs of a budget beside its bytes

}  // namespace

class Verification::Impl {
 public:
  explicit Impl(CheckpointInfo info) : info_(std::move(info)) {}

  Status open() { return info_.format == Format::manifest ? open_manifest() : open_bundle(); }

  Result<bool> advance(std::uint64_t budget) {
    while (budget > 0) {
      if (!in_part_) {
        if (next_part_ == part_count()) {
          if (auto unchanged = close_file(); !unchanged) return fail(unchanged.error());
          return true;
        }
        if (auto begun = begin_part(); !begun) return fail(begun.error());
        budget -= std::min(budget, kPartCost);
      }
      const auto used = read_some(std::min<std::uint64_t>(budget, part_left_));
      if (!used) return fail(used.error());
      budget -= *used;
      if (part_left_ > 0) continue;
      if (auto ended = end_part(); !ended) return fail(ended.error());
    }
    return false;
  }

 private:
  tl::unexpected<Error> no(ErrorCode code, const std::string& cause, std::string next = "") const {
    return fail(code, "could not verify checkpoint " + info_.path + ": " + cause, std::move(next));
  }
  tl::unexpected<Error> no(const Error& e) const { return no(e.code, e.message, e.next); }
  tl::unexpected<Error> changed() const {
    return no(ErrorCode::unavailable, file_name_ + " changed while it was read", "look again when its writer is done");
  }

  // The one file that says what belongs to the checkpoint.
  Result<std::string> read_table_of_contents(const std::string& directory, const std::string& name, std::size_t limit) {
    auto opened = open_directory(directory);
    if (!opened) return no(opened.error());
    directory_ = std::move(*opened);
    auto content = read_beneath(directory_, name, limit);
    if (!content) return no(content.error());
    if (!info_.digest.empty() && transfer::blake2b_hex(content->bytes) != info_.digest) {
      // Damage to this file since the scan, or another checkpoint of the same name: when it parses, the latter.
      replaced_ = true;
    }
    return std::move(content->bytes);
  }
  Status check_replaced() const {
    if (!replaced_) return {};
    return no(ErrorCode::unavailable, "it was replaced since it was found", "scan again");
  }

  Status open_manifest() {
    const auto text = read_table_of_contents(info_.path, std::string(transfer::kManifestName), transfer::kManifestBytes);
    if (!text) return fail(text.error());
    auto manifest = transfer::parse_manifest(*text);
    if (!manifest) return no(manifest.error().code, std::string(transfer::kManifestName) + ": " + manifest.error().message);
    files_ = std::move(manifest->files);
    return check_replaced();
  }

  Status open_bundle() {
    const auto [parent, base] = split_path(info_.path);
    prefix_ = base;
    const std::string name = transfer::bundle_index_name(base);
    const auto bytes = read_table_of_contents(parent, name, transfer::kBundleIndexBytes);
    if (!bytes) return fail(bytes.error());
    auto index = transfer::parse_bundle_index(*bytes);
    if (!index) return no(index.error().code, name + ": " + index.error().message, index.error().next);
    index_ = std::move(*index);
    // Shards without any tensor must be there all the same.
    for (std::uint32_t shard = 0; shard < index_.shards; ++shard) {
      const std::string data = transfer::bundle_data_name(prefix_, shard, index_.shards);
      const auto facts = facts_beneath(directory_, data);
      if (!facts) return missing_is_damage(facts.error());
      if (facts->kind != FileFacts::Kind::regular) return no(ErrorCode::damaged, data + " is not a regular file");
      if (facts->size < index_.shard_bytes[shard]) return no(ErrorCode::damaged, data + " is cut short");
    }
    return check_replaced();
  }

  tl::unexpected<Error> missing_is_damage(const Error& e) const {
    if (e.code != ErrorCode::not_found) return no(e);
    // The whole checkpoint gone (deleted, renamed) is something else than one file missing from it.
    const std::string contents = info_.format == Format::manifest ? std::string(transfer::kManifestName)
                                                                  : transfer::bundle_index_name(prefix_);
    if (!facts_beneath(directory_, contents)) return no(ErrorCode::not_found, "it went away while it was read");
    return no(ErrorCode::damaged, e.message);
  }

  std::size_t part_count() const { return info_.format == Format::manifest ? files_.size() : index_.entries.size(); }

  Status begin_part() {
    std::string name;
    if (info_.format == Format::manifest) {
      const auto& file = files_[next_part_];
      name = file.name;
      position_ = 0;
      part_left_ = file.size;
      sha_ = transfer::Sha256();
    } else {
      const auto& entry = index_.entries[next_part_];
      name = transfer::bundle_data_name(prefix_, entry.shard, index_.shards);
      position_ = entry.offset;
      part_left_ = entry.size;
      check_.emplace(entry);
    }
    if (name != file_name_ || !file_.valid()) {
      if (auto opened = open_next(name); !opened) return opened;
    }
    in_part_ = true;
    return {};
  }

  Status open_next(const std::string& name) {
    if (auto unchanged = close_file(); !unchanged) return unchanged;
    auto file = open_file_beneath(directory_, name);
    if (!file) return missing_is_damage(file.error());
    const auto facts = facts_of(*file);
    if (!facts) return no(facts.error());
    file_ = std::move(*file);
    file_name_ = name;
    opened_ = *facts;
    window_size_ = 0;
    const bool short_file = facts->size < position_ + part_left_;
    const bool wrong_size = info_.format == Format::manifest && facts->size != part_left_;
    if (short_file || wrong_size)
      return no(ErrorCode::damaged, name + " has " + std::to_string(facts->size) + " bytes instead of " +
                                        std::to_string(position_ + part_left_));
    return {};
  }

  Status close_file() {
    if (!file_.valid()) return {};
    const auto now = facts_of(file_);
    if (!now) return no(now.error());
    if (*now != opened_) return changed();
    file_ = FileDescriptor();
    return {};
  }

  // Small tensors lie side by side: they are fed from one read.
  Result<std::uint64_t> read_some(std::uint64_t most) {
    if (part_left_ == 0) return std::uint64_t{0};
    if (position_ < window_start_ || position_ >= window_start_ + window_size_) {
      if (buffer_.empty()) buffer_.resize(kReadBytes);
      const auto have = read_at(file_, position_, buffer_.data(), buffer_.size());
      if (!have) return no(have.error().code, file_name_ + ": " + have.error().message);
      if (*have == 0) return changed();  // its size was right when it was opened
      window_start_ = position_;
      window_size_ = *have;
    }
    const std::uint64_t at = position_ - window_start_;
    const std::uint64_t size = std::min({most, part_left_, window_size_ - at});
    const auto bytes = std::string_view(buffer_).substr(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
    if (info_.format == Format::manifest) sha_.update(bytes);
    else check_->feed(bytes);
    position_ += size;
    part_left_ -= size;
    return size;
  }

  Status end_part() {
    in_part_ = false;
    const std::size_t part = next_part_++;
    if (info_.format == Format::manifest) {
      if (sha_.finish_hex() == files_[part].sha256) return {};
      if (auto unchanged = close_file(); !unchanged) return unchanged;
      return no(ErrorCode::damaged, file_name_ + " has another sha256 than the manifest says");
    }
    if (check_->finish()) return {};
    if (auto unchanged = close_file(); !unchanged) return unchanged;
    return no(ErrorCode::damaged, file_name_ + ": tensor " + index_.entries[part].name + " has another checksum than the index says");
  }

  const CheckpointInfo info_;
  FileDescriptor directory_;
  std::string prefix_;                          // tensorflow: last component of the path
  std::vector<transfer::ManifestFile> files_;   // manifest
  transfer::BundleIndex index_;                 // tensorflow
  bool replaced_ = false;

  std::size_t next_part_ = 0;    // a part is a file of a manifest, a tensor of a bundle
  bool in_part_ = false;
  std::uint64_t position_ = 0, part_left_ = 0;
  transfer::Sha256 sha_;
  std::optional<transfer::BundleEntryCheck> check_;

  FileDescriptor file_;
  std::string file_name_;
  FileFacts opened_;             // as it was when it was opened
  std::string buffer_;
  std::uint64_t window_start_ = 0, window_size_ = 0;
};

Verification::Verification(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Verification::Verification(Verification&&) noexcept = default;
Verification& Verification::operator=(Verification&&) noexcept = default;
Verification::~Verification() = default;

Result<Verification> Verification::begin(const CheckpointInfo& info) {
  auto impl = std::make_unique<Impl>(info);
  if (auto opened = impl->open(); !opened) return fail(opened.error());
  return Verification(std::move(impl));
}

Result<bool> Verification::advance(std::uint64_t budget) { return impl_->advance(budget); }

Status verify(const CheckpointInfo& info) {
  auto verification = Verification::begin(info);
  if (!verification) return fail(verification.error());
  const auto done = verification->advance(std::numeric_limits<std::uint64_t>::max());
  if (!done) return fail(done.error());
  return {};
}

}  // namespace dtrain::store
