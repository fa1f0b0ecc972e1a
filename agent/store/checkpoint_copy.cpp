#include "agent/store/checkpoint_copy.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <tuple>

#include "agent/store/checkpoint_hint.h"
#include "agent/store/file.h"
#include "common/node/checkpoint_copies.h"
#include "common/transfer/digest.h"

namespace dtrain::store {
namespace {

// The table of contents first, because it names the others. A host's share of a checkpoint has none.
Result<std::vector<std::string>> names_of(const Opened& table, const transfer::Format& format, const std::string& base) {
  const auto contents = table.parse(format, base);
  if (!contents) return fail(contents.error());
  std::vector<std::string> names;
  if (!table.share) names.push_back(table.name);
  for (const auto& file : (*contents)->files) names.push_back(file.name);
  return names;
}

// Like open_directory, but makes missing directories, for their owner only.
Result<UniqueFd> open_home(const std::string& path) {
  auto opened = open_directory(path);
  if (opened || opened.error().code != ErrorCode::not_found) return opened;
  const auto [parent, name] = split_path(path);
  const auto above = open_home(parent);
  return above ? make_beneath(*above, name) : fail(above.error());
}

}  // namespace

// ---------------------------------------------------------------- where it is

Result<CheckpointSource> CheckpointSource::open(const transfer::CheckpointInfo& info, const std::string& below) {
  const auto could_not = [&](ErrorCode code, const std::string& cause) {
    return fail(code, "could not send checkpoint " + info.path + ": " + cause);
  };
  const transfer::Format& format = transfer::format_of(info.format);
  const FilesPlace place = place_of_files(info);
  CheckpointSource source;
  auto directory = open_directory_below(below, place.directory);
  if (!directory && directory.error().code == ErrorCode::damaged)
    return could_not(ErrorCode::not_found, "a link or a file is in its way: " + directory.error().message);
  if (!directory) return could_not(directory.error().code, directory.error().message);
  source.directory_ = std::move(*directory);
  const auto table = open_contents(source.directory_, info, place.base);
  if (!table && format.table != nullptr && (table.error().code == ErrorCode::damaged || table.error().code == ErrorCode::refused))
    return could_not(ErrorCode::not_found, "what is there now is not whole: " + table.error().message);  // it was when it was found
  if (!table) return could_not(table.error().code, table.error().message);
  if (transfer::blake2b_hex(table->content.bytes) != info.digest) return could_not(ErrorCode::not_found, "another one has its name");
  auto names = names_of(*table, format, place.base);
  if (!names) return could_not(names.error().code, names.error().message);
  const std::string optional = format.optional_file(place.base);
  if (!optional.empty() && facts_beneath(source.directory_, optional)) names->push_back(optional);
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

CheckpointTarget::CheckpointTarget(const node::WriteCheckpoint& first, const CopyOptions& options)
    : info_(first.info),
      format_(transfer::format_of(info_.format)),
      files_(first.files),
      temporary_(temporary_name(options.owner, first.writer)) {
  info_.path = without_trailing_slashes(info_.path);
  const std::string dir = without_trailing_slashes(first.dir);
  std::string parent;
  std::tie(parent, base_) = split_path(info_.path);
  std::string relative = base_;
  home_ = parent;
  if (info_.path == dir && format_.directory) {  // its parent may be on another disk, or not writable
    home_ = dir;
    relative.clear();
  } else if (!dir.empty() && info_.path.starts_with(dir + "/")) {
    home_ = dir;
    relative = info_.path.substr(dir.size() + 1);
  } else {
    elsewhere_ = info_.path != dir;
  }
  if (!format_.directory) relative.resize(relative.size() - std::min(relative.size(), base_.size() + 1));  // the directory of its files
  inside_ = relative;
}

tl::unexpected<Error> CheckpointTarget::damaged(const std::string& cause) const {
  return fail(ErrorCode::damaged, "could not copy checkpoint " + info_.path + ": " + cause);
}

// Files that are missing or wrong here belong to the user's directory: neither the job nor the source is at fault.
tl::unexpected<Error> CheckpointTarget::failed_here(const Error& cause) const {
  const ErrorCode code = cause.code == ErrorCode::unavailable ? cause.code : ErrorCode::io;
  return fail(code, "could not copy checkpoint " + info_.path + ": " + cause.message,
              cause.next.empty() ? "see who may write to " + home_ + ", and what is there" : cause.next);
}

Result<std::unique_ptr<CheckpointTarget>> CheckpointTarget::begin(const node::WriteCheckpoint& first, const CopyOptions& options) {
  std::unique_ptr<CheckpointTarget> target(new CheckpointTarget(first, options));
  if (Status right = target->check_list(); !right) return fail(right.error());
  auto home = open_home(target->home_);
  if (!home) return target->failed_here(home.error());
  target->home_directory_ = std::move(*home);
  remove_leftovers(target->home_, options.owner);
  if (Status space = target->check_space(options.reserve); !space) return fail(space.error());
  if (Status made = target->make_temporary(); !made) return fail(made.error());
  if (Status opened = target->open_next(); !opened) {
    target->drop();
    return fail(opened.error());
  }
  return target;
}

// The first file says which of the others belong to the checkpoint.
Status CheckpointTarget::check_list() const {
  const bool begins = !files_.empty() && (info_.is_share() || transfer::may_be_contents(format_, base_, files_.front().name));
  if (!begins) return damaged("the first file that came is not " + format_.contents_name(base_));
  std::set<std::string_view> names;
  for (const auto& file : files_) {
    if (!format_.is_file_of(file.name, base_)) return damaged("a file of it is called " + file.name);
    if (!names.insert(file.name).second) return damaged(file.name + " is in it twice");
  }
  for (const auto& file : files_)
    for (auto slash = file.name.find('/'); slash != std::string::npos; slash = file.name.find('/', slash + 1))
      if (names.contains(std::string_view(file.name).substr(0, slash))) return damaged(file.name + " is below a file");
  return {};
}

Status CheckpointTarget::check_space(const Reserve& reserve) const {
  struct statvfs disk {};
  if (::fstatvfs(home_directory_.get(), &disk) != 0) return failed_here(system_error(home_, errno));
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::uint64_t keep = reserve.of(std::uint64_t{disk.f_blocks} * disk.f_frsize);
  std::uint64_t size = 0;
  for (const auto& file : files_) size += std::min(file.size, ~size);        // a source may claim more than a number can hold
  if (disk.f_blocks == 0 || size <= free - std::min(free, keep)) return {};  // some file systems do not report their size
  return fail(ErrorCode::limit,
              "could not copy checkpoint " + info_.path + ": it has " + std::to_string(size >> 20) + " MiB, " + std::to_string(free >> 20) +
                  " MiB are free in " + home_ + " and " + std::to_string(keep >> 20) + " MiB of these are kept (storage.minFree)",
              "free some space on that disk");
}

Status CheckpointTarget::make_temporary() {
  if (::mkdirat(home_directory_.get(), temporary_.c_str(), 0700) != 0) return failed_here(system_error(home_ + "/" + temporary_, errno));
  auto opened = open_directory_at(home_directory_, temporary_);
  if (!opened) return failed_here(opened.error());
  temporary_directory_ = std::move(*opened);
  return {};
}

// The next file with bytes; empty files are made on the way.
Status CheckpointTarget::open_next() {
  while (left_ == 0 && next_ < files_.size()) {
    const auto& file = files_[next_++];
    const auto [inner, name] = split_path(file.name);
    const auto directory = make_beneath(temporary_directory_, inner);
    if (!directory) return failed_here(directory.error());
    file_ = UniqueFd(::openat(directory->get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file_) return failed_here(system_error(file.name, errno));
    left_ = file.size;
  }
  return {};
}

Status CheckpointTarget::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (Status opened = open_next(); !opened) return opened;
    if (left_ == 0) return damaged("more bytes came than it has");
    const std::string_view piece = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left_)));
    if (!write_all(file_.get(), piece)) {
      Error error = system_error(files_[next_ - 1].name, errno);
      if (errno == ENOSPC || errno == EDQUOT) error.next = "make room on that disk";
      return failed_here(error);
    }
    left_ -= piece.size();
    bytes.remove_prefix(piece.size());
  }
  return open_next();
}

// Otherwise a source could put files into the user's directory that no digest covers.
Status CheckpointTarget::check_names() const {
  const auto table = open_contents(temporary_directory_, info_, base_);
  if (!table)
    return table.error().code == ErrorCode::damaged || table.error().code == ErrorCode::refused ? damaged(table.error().message)
                                                                                                : failed_here(table.error());
  const auto names = names_of(*table, format_, base_);
  if (!names) return damaged(names.error().message);
  const std::set<std::string_view> named(names->begin(), names->end());
  for (const auto& file : files_)
    if (!named.contains(file.name) && file.name != format_.optional_file(base_)) return damaged("nothing in it names " + file.name);
  return {};
}

Result<bool> CheckpointTarget::finish(std::uint64_t budget) {
  if (!verification_) {
    file_ = UniqueFd();
    if (left_ != 0 || next_ != files_.size()) return damaged("fewer bytes came than it has");
    if (Status right = check_names(); !right) return fail(right.error());
    transfer::CheckpointInfo copy = info_;
    copy.place = 0;  // of these files nothing is known
    copy.path = home_ + "/" + temporary_ + (format_.directory ? "" : "/" + base_);
    auto begun = Verification::begin(copy, home_);
    if (!begun && begun.error().code == ErrorCode::io) return failed_here(begun.error());
    if (!begun) return damaged(begun.error().message);
    verification_ = std::move(*begun);
  }
  const auto done = verification_->advance(budget);
  if (!done) return done.error().code == ErrorCode::damaged ? damaged(done.error().message) : failed_here(done.error());
  if (!*done) return false;
  if (Status placed = put(); !placed) return fail(placed.error());
  return true;
}

Status CheckpointTarget::put_one(const UniqueFd& to, const std::string& name) const {
  const auto [inner, last] = split_path(name);
  const auto directory = make_beneath(to, inner);
  if (!directory) return failed_here(directory.error());
  if (::renameat(temporary_directory_.get(), name.c_str(), directory->get(), last.c_str()) != 0)
    return failed_here(system_error(name, errno));
  return {};
}

// A directory is moved at once; files of a format without directory, or in a shared directory, one by one, the table
// of contents last.
Status CheckpointTarget::put() {
  const auto [above, name] = split_path(inside_);
  Result<bool> hinted = false;
  const auto make_hint = [&](std::int64_t changed_ns) -> Status {
    const std::string relative = format_.directory ? inside_ : (inside_.empty() ? "" : inside_ + "/") + base_;
    hinted = write_hint(*format_.hint, {home_directory_, home_}, relative, changed_ns, elsewhere_, temporary_directory_);
    if (!hinted) return failed_here(hinted.error());
    return {};
  };
  if (format_.hint != nullptr && !info_.is_share()) {  // everything that can fail comes before the checkpoint becomes visible
    const auto index = facts_beneath(temporary_directory_, files_.front().name);
    if (!index) return failed_here(index.error());
    if (Status made = make_hint(index->changed_ns); !made) return made;
  }
  const auto put_hint = [&] { return *hinted ? put_one(home_directory_, std::string(format_.hint->name)) : Status{}; };
  if (format_.directory && !inside_.empty()) {
    const auto parent = make_beneath(home_directory_, above);
    if (!parent) return failed_here(parent.error());
    if (rename_new(home_directory_, temporary_, *parent, name)) return put_hint();
    if (errno != EEXIST && errno != ENOTEMPTY) return failed_here(system_error(info_.path, errno));
  }
  const auto to = make_beneath(home_directory_, inside_);
  if (!to) return failed_here(to.error());
  for (std::size_t i = files_.size(); i-- > 0;)
    if (Status placed = put_one(*to, files_[i].name); !placed) return placed;
  if (format_.hint != nullptr && info_.is_share()) {  // if this was the last share that was missing
    const auto all = read_contents(*to, format_, base_);
    if (all && format_.parse(all->bytes, base_))
      if (Status made = make_hint(all->facts.changed_ns); !made) return made;
  }
  if (Status placed = put_hint(); !placed) return placed;
  drop();
  return {};
}

void CheckpointTarget::drop() {
  file_ = UniqueFd();
  (void)remove_tree(home_ + "/" + temporary_);
}

}  // namespace dtrain::store
