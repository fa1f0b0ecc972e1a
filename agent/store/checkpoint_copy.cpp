#include "agent/store/checkpoint_copy.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "agent/store/file.h"
#include "common/node/checkpoint_copies.h"
#include "common/transfer/digest.h"
#include "common/transfer/manifest.h"
#include "common/transfer/tf_bundle.h"

namespace dtrain::store {
namespace {

using transfer::Format;

const std::string kManifest(transfer::kManifestName);
constexpr const char* kTemporary = ".dtrain.tmp";

// The manifest or index first: it names the others. `base`: of a bundle.
Result<std::vector<std::string>> names_of(const std::string& contents, const transfer::CheckpointInfo& info, const std::string& base) {
  std::vector<std::string> names;
  if (info.format == Format::manifest) {
    const auto manifest = transfer::parse_manifest(contents);
    if (!manifest) return fail(manifest.error());
    names.push_back(kManifest);
    for (const auto& file : manifest->files)
      if (std::ranges::find(names, file.name) == names.end()) names.push_back(file.name);
    return names;
  }
  const auto index = transfer::parse_bundle_index(contents);
  if (!index) return fail(index.error());
  names.push_back(transfer::bundle_index_name(base));
  for (std::uint32_t shard = 0; shard < index->shards; ++shard) names.push_back(transfer::bundle_data_name(base, shard, index->shards));
  return names;
}

bool is_name_of(const std::string& name, const transfer::CheckpointInfo& info, const std::string& base) {
  return transfer::is_inner_name(name) && (info.format == Format::manifest || transfer::is_bundle_file(name, base));
}

}  // namespace

// ---------------------------------------------------------------- where it is

Result<CheckpointSource> CheckpointSource::open(const transfer::CheckpointInfo& info) {
  const auto could_not = [&](ErrorCode code, const std::string& cause) {
    return fail(code, "could not send checkpoint " + info.path + ": " + cause);
  };
  const bool bundle = info.format == Format::tensorflow;
  const auto [parent, base] = split_path(info.path);
  CheckpointSource source;
  auto directory = open_directory(bundle ? parent : info.path);
  if (!directory) return could_not(directory.error().code, directory.error().message);
  source.directory_ = std::move(*directory);
  const std::string first = bundle ? transfer::bundle_index_name(base) : kManifest;
  const auto content = read_beneath(source.directory_, first, bundle ? transfer::kBundleIndexBytes : transfer::kManifestBytes);
  if (!content) return could_not(content.error().code, content.error().message);
  if (transfer::blake2b_hex(content->bytes) != info.digest) return could_not(ErrorCode::not_found, "another one has its name");
  auto names = names_of(content->bytes, info, base);
  if (!names) return could_not(names.error().code, names.error().message);
  if (bundle && facts_beneath(source.directory_, base + ".meta")) names->push_back(base + ".meta");
  if (names->size() > node::kCopiedFiles)
    return could_not(ErrorCode::limit, "it has more than " + std::to_string(node::kCopiedFiles) + " files");
  for (const std::string& name : *names) {
    const auto facts = facts_beneath(source.directory_, name);
    if (!facts) return could_not(facts.error().code, facts.error().message);
    source.files_.push_back({name, facts->size});
    source.size_ += facts->size;
  }
  return source;
}

Result<std::string> CheckpointSource::read(std::uint64_t offset, std::size_t most) {
  std::string bytes;
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < files_.size() && bytes.size() < most; begin += files_[i++].size) {
    const std::uint64_t at = offset + bytes.size();
    if (at >= begin + files_[i].size) continue;
    if (opened_ != i) {
      auto file = open_file_beneath(directory_, files_[i].name);
      if (!file) return fail(file.error());
      file_ = std::move(*file);
      opened_ = i;
    }
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(most - bytes.size(), begin + files_[i].size - at));
    const std::size_t before = bytes.size();
    bytes.resize(before + wanted);
    const auto have = read_at(file_, at - begin, bytes.data() + before, wanted);
    if (!have) return fail(have.error());
    if (*have < wanted) return fail(ErrorCode::unavailable, files_[i].name + " became shorter while it was read");
  }
  return bytes;
}

// ---------------------------------------------------------------- where it is to be

CheckpointTarget::CheckpointTarget(const node::WriteCheckpoint& first) : info_(first.info), files_(first.files) {
  info_.path = without_trailing_slashes(info_.path);
  std::tie(parent_, base_) = split_path(info_.path);
  temporary_ = info_.path + kTemporary;
}

tl::unexpected<Error> CheckpointTarget::could_not(const Error& cause) const {
  return fail(cause.code, "could not write a copy of checkpoint " + info_.path + ": " + cause.message, cause.next);
}

Result<std::unique_ptr<CheckpointTarget>> CheckpointTarget::begin(const node::WriteCheckpoint& first) {
  std::unique_ptr<CheckpointTarget> target(new CheckpointTarget(first));
  for (const auto& file : target->files_)
    if (!is_name_of(file.name, target->info_, target->base_))
      return target->could_not({ErrorCode::damaged, "a file of it is called " + file.name, ""});
  if (Status removed = remove_tree(target->temporary_); !removed) return target->could_not(removed.error());
  if (Status made = make_directories(target->temporary_, 0755); !made) return target->could_not(made.error());
  if (Status opened = target->open_next(); !opened) return fail(opened.error());
  return target;
}

// The next file that has bytes; those without are made on the way.
Status CheckpointTarget::open_next() {
  while (left_ == 0 && next_ < files_.size()) {
    const auto& file = files_[next_++];
    const std::string path = temporary_ + "/" + file.name;
    if (file.name.find('/') != std::string::npos)
      if (Status made = make_directories(split_path(path).first, 0755); !made) return could_not(made.error());
    file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file_.valid()) return could_not(system_error(file.name, errno));
    left_ = file.size;
  }
  return {};
}

Status CheckpointTarget::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (Status opened = open_next(); !opened) return opened;
    if (left_ == 0) return could_not({ErrorCode::damaged, "more bytes came than it has", ""});
    const std::string_view piece = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left_)));
    if (!write_all(file_.get(), piece)) {
      Error error = system_error(files_[next_ - 1].name, errno);
      if (errno == ENOSPC || errno == EDQUOT) error.next = "make room on that disk";
      return could_not(error);
    }
    left_ -= piece.size();
    bytes.remove_prefix(piece.size());
  }
  return open_next();
}

Result<bool> CheckpointTarget::finish(std::uint64_t budget) {
  if (!verification_) {
    file_ = FileDescriptor();
    if (left_ != 0 || next_ != files_.size()) return could_not({ErrorCode::damaged, "fewer bytes came than it has", ""});
    transfer::CheckpointInfo copy = info_;
    copy.path = info_.format == Format::tensorflow ? temporary_ + "/" + base_ : temporary_;
    auto begun = Verification::begin(copy);
    if (!begun) return could_not({ErrorCode::damaged, begun.error().message, ""});
    verification_ = std::move(*begun);
  }
  const auto done = verification_->advance(budget);
  if (!done) return could_not(done.error());
  if (!*done) return false;
  if (Status placed = put(); !placed) return fail(placed.error());
  return true;
}

Status CheckpointTarget::put_one(const std::string& name) {
  const std::string to = (info_.format == Format::tensorflow ? parent_ : info_.path) + "/" + name;
  if (Status made = make_directories(split_path(to).first, 0755); !made) return could_not(made.error());
  if (::rename((temporary_ + "/" + name).c_str(), to.c_str()) != 0) return could_not(system_error(to, errno));
  return {};
}

// A directory at once; what has none, or shares one, file by file, the manifest or index last.
Status CheckpointTarget::put() {
  if (info_.format == Format::manifest && ::rename(temporary_.c_str(), info_.path.c_str()) == 0) return {};
  for (std::size_t i = files_.size(); i-- > 0;)
    if (Status placed = put_one(files_[i].name); !placed) return placed;
  drop();
  return {};
}

void CheckpointTarget::drop() {
  file_ = FileDescriptor();
  (void)remove_tree(temporary_);
}

}  // namespace dtrain::store
