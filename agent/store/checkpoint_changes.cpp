#include "agent/store/checkpoint_changes.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <set>
#include <tuple>

#include "agent/store/checkpoint_files.h"
#include "agent/store/checkpoint_reader.h"
#include "common/transfer/digest.h"
#include "common/transfer/selection.h"
#include "common/transfer/shares.h"

namespace dtrain::store {
namespace {

using transfer::CheckpointInfo;

// One change to one checkpoint: its name in messages, and the directory to which its names are relative.
class Change {
 public:
  Change(std::string verb, const CheckpointInfo& info, std::string checkpoint_dir)
      : verb_(std::move(verb)), info_(info), checkpoint_dir_(without_trailing_slashes(checkpoint_dir)) {
    std::tie(parent_, base_) = split_path(info.path);
  }

  Result<std::string> quarantine() {
    if (const auto opened = open(); !opened) return fail(opened.error());
    // The hint goes first, so that a script that follows it never meets a name without files. If it cannot be
    // written the files are moved all the same; a hint that names nothing is the lesser evil.
    const auto hint = rewrite_hint();
    auto moved = format_.directory ? quarantine_directory() : quarantine_files();
    if (moved && !hint) return fail(hint.error());
    return moved;
  }

  Status remove() {
    const auto bytes = open();
    if (!bytes) return fail(bytes.error());
    if (auto hint = rewrite_hint(); !hint) return hint;
    return format_.directory ? remove_directory(*bytes) : remove_files();
  }

 private:
  Result<std::string> quarantine_directory() {
    Result<std::string> moved = fail(ErrorCode::not_found, "");
    if (parent_ == checkpoint_dir_) {
      // If the parent is not writable, the table of contents is renamed instead.
      const auto parent = open_directory(parent_);
      moved = parent ? rename_aside(*parent, base_, format_.broken_off != nullptr) : fail(parent.error());
    }
    const auto renamed = rename_aside(directory_, contents_);
    if (moved) return parent_ + "/" + *moved;
    if (!renamed && parent_ == checkpoint_dir_ && renamed.error().code == ErrorCode::not_found) return moved;
    if (!renamed) return fail(renamed.error());
    return info_.path + "/" + *renamed;
  }

  tl::unexpected<Error> no(const Error& e) const {
    return fail(e.code, "could not " + verb_ + " checkpoint " + info_.path + ": " + e.message,
                e.next.empty() ? "see who may write to its directory" : e.next);
  }
  tl::unexpected<Error> no(const std::string& name, int error_number) const { return no(system_error(name, error_number)); }

  // Opens the directory and makes sure that it still holds the intended checkpoint.
  Result<std::string> open() {
    // Of a checkpoint elsewhere the last component at least is no link, either.
    const std::string place = place_of_files(info_).directory;
    const bool own = place == checkpoint_dir_ || (!checkpoint_dir_.empty() && place.starts_with(checkpoint_dir_ + "/"));
    auto opened = open_directory_below(own ? checkpoint_dir_ : split_path(place).first, place);
    if (!opened) return no(opened.error());
    directory_ = std::move(*opened);
    contents_ = contents_file(directory_, format_, base_);
    auto table = open_contents(directory_, info_, base_);
    if (!table) {
      // Contents that cannot be read can still be moved away; they were never found readable.
      const bool gone = table.error().code == ErrorCode::not_found && !is_broken_off(directory_, format_, base_, true);
      if (gone || !info_.digest.empty()) return no(table.error());
      return std::string();
    }
    contents_ = table->name;
    if (transfer::blake2b_hex(table->content.bytes) != info_.digest)
      return no(Error{ErrorCode::unavailable, "another one has its name now", "scan again"});
    return std::move(table->content.bytes);
  }

  Result<std::string> rename_aside(const UniqueFd& directory, const std::string& name, bool before = false) const {
    for (std::uint32_t k = 1; k <= kQuarantineNames; ++k) {
      std::string aside = transfer::quarantined_name(name, k, before);
      if (rename_new(directory, name, directory, aside)) return aside;
      if (errno != EEXIST && errno != ENOTEMPTY) return no(name, errno);
    }
    return no(Error{ErrorCode::limit, "no name is free for " + name, "remove what was quarantined before"});
  }
  Result<std::string> quarantine_files() {
    const auto moved = rename_aside(directory_, contents_);
    if (!moved) return fail(moved.error());
    const auto names = list_names(directory_);
    if (!names) return no(names.error());
    for (const auto& name : *names) {
      if (!format_.is_file_of(name, base_)) continue;
      if (auto renamed = rename_aside(directory_, name); !renamed) return fail(renamed.error());
    }
    return parent_ + "/" + *moved;
  }

  Status rewrite_hint() const {
    if (format_.hint == nullptr) return {};
    const std::string home = checkpoint_dir_.empty() ? parent_ : checkpoint_dir_;
    const std::string name(format_.hint->name);
    const auto directory = open_directory(home);
    if (!directory) return {};
    const auto content = read_beneath(*directory, name, format_.hint->bytes);
    if (!content) return {};
    const auto text = format_.hint->without(content->bytes, home, info_.path, successor(home));
    if (!text) return {};
    if (text->empty()) {
      if (auto renamed = rename_aside(*directory, name); !renamed) return fail(renamed.error());
      return {};
    }
    return replace_file(*directory, name, *text);
  }

  std::string successor(const std::string& home) const {
    job::CheckpointSpec spec;
    spec.dir = home;
    spec.format = job::only(info_.format);
    const auto found = scan(spec);
    if (found)
      for (const auto& other : *found)
        if (other.complete && other.path != info_.path) return other.path;
    return "";
  }

  Status replace_file(const UniqueFd& directory, const std::string& name, const std::string& bytes) const {
    constexpr mode_t kMode = 0666;  // the umask decides, as it did for the file that is replaced
    const std::string temporary = name + ".dtrain.tmp";
    ::unlinkat(directory.get(), temporary.c_str(), 0);  // of a life that was interrupted
    const UniqueFd file(::openat(directory.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
    if (!file) return no(temporary, errno);
    int error_number = 0;
    for (std::size_t written = 0; written < bytes.size() && error_number == 0;) {
      const ssize_t n = ::write(file.get(), bytes.data() + written, bytes.size() - written);
      if (n >= 0) written += static_cast<std::size_t>(n);
      else if (errno != EINTR) error_number = errno;
    }
    if (error_number == 0 && ::fsync(file.get()) != 0) error_number = errno;
    if (error_number == 0 && ::renameat(directory.get(), temporary.c_str(), directory.get(), name.c_str()) != 0) error_number = errno;
    if (error_number == 0) return {};
    ::unlinkat(directory.get(), temporary.c_str(), 0);
    return no(name, error_number);
  }

  Status remove_file(const std::string& relative) const {
    const auto [inner, name] = split_path(relative);
    const auto walked = open_beneath(directory_, inner);
    if (!walked) return walked.error().code == ErrorCode::not_found ? Status{} : Status(no(walked.error()));
    if (::unlinkat(walked->get(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
    return no(relative, errno);
  }

  Status remove_directory(const std::string& bytes) const {
    const auto contents = info_.is_share() ? transfer::parse_shares(bytes) : format_.parse(bytes, base_);
    if (!contents) return no(contents.error());
    if (auto removed = remove_file(contents_); !removed) return removed;
    std::set<std::string, std::greater<>> directories;  // deeper ones come first
    for (const auto& file : (*contents)->files) {
      if (auto removed = remove_file(file.name); !removed) return removed;
      for (auto slash = file.name.rfind('/'); slash != std::string::npos && slash > 0; slash = file.name.rfind('/', slash - 1))
        directories.insert(file.name.substr(0, slash));
    }
    // A directory with other content stays: it is not dtrain's to delete.
    for (const auto& directory : directories) {
      const auto [inner, name] = split_path(directory);
      if (const auto walked = open_beneath(directory_, inner)) ::unlinkat(walked->get(), name.c_str(), AT_REMOVEDIR);
    }
    if (parent_ == checkpoint_dir_) ::rmdir(info_.path.c_str());
    return {};
  }

  Status remove_files() const {
    if (auto removed = remove_file(contents_); !removed) return removed;
    const auto names = list_names(directory_);
    if (!names) return no(names.error());
    for (const auto& name : *names) {
      if (!format_.is_file_of(name, base_)) continue;
      if (auto removed = remove_file(name); !removed) return removed;
    }
    return {};
  }

  const std::string verb_;
  const CheckpointInfo& info_;
  const transfer::Format& format_ = transfer::format_of(info_.format);
  const std::string checkpoint_dir_;
  std::string parent_, base_, contents_;
  UniqueFd directory_;  // where its files are: the checkpoint itself, or its parent
};

}  // namespace

Result<std::string> quarantine(const CheckpointInfo& info, const std::string& checkpoint_dir) {
  return Change("quarantine", info, checkpoint_dir).quarantine();
}

Status remove(const CheckpointInfo& info, const std::string& checkpoint_dir) { return Change("remove", info, checkpoint_dir).remove(); }

}  // namespace dtrain::store
