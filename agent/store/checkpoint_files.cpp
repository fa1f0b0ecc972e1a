#include "agent/store/checkpoint_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "common/transfer/shares.h"

namespace dtrain::store {
namespace {

constexpr mode_t kPrivateDirectory = 0700;
constexpr int kDirectoryFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;

tl::unexpected<Error> no(std::string_view path, int error_number) { return fail(system_error(path, error_number)); }
tl::unexpected<Error> wrong(std::string_view path, const char* what) { return fail(ErrorCode::damaged, std::string(path) + " is " + what); }

FileFacts to_facts(const struct stat& st) {
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  FileFacts facts;
  facts.kind = S_ISREG(st.st_mode)   ? FileFacts::Kind::regular
               : S_ISDIR(st.st_mode) ? FileFacts::Kind::directory
               : S_ISLNK(st.st_mode) ? FileFacts::Kind::link
                                     : FileFacts::Kind::other;
  facts.inode = st.st_ino;
  facts.size = static_cast<std::uint64_t>(st.st_size);
  // Wraps for absurd times; it is only ever compared.
  facts.changed_ns = static_cast<std::int64_t>(static_cast<std::uint64_t>(st.st_mtim.tv_sec) * kNanoseconds +
                                               static_cast<std::uint64_t>(st.st_mtim.tv_nsec));
  return facts;
}

// Opens the directory that holds the last component of `relative`; `name` is that component.
Result<UniqueFd> open_parent(const UniqueFd& directory, const std::string& relative, std::string& name) {
  const auto slash = relative.rfind('/');
  name = slash == relative.npos ? relative : relative.substr(slash + 1);
  return open_beneath(directory, slash == relative.npos ? "" : relative.substr(0, slash));
}

// A directory, by rules that only openat2() has. ENOSYS: the kernel has no such call, or a container refuses what it does not know.
UniqueFd open_by_rules(int at, const std::string& path, std::uint64_t rules) {
  open_how how{};
  how.flags = kDirectoryFlags;
  how.resolve = rules;
  UniqueFd directory(static_cast<int>(::syscall(SYS_openat2, at, path.c_str(), &how, sizeof(how))));
  if (!directory && errno == EPERM) errno = ENOSYS;
  return directory;
}

bool leads_out(const std::string& relative) { return ("/" + relative + "/").find("/../") != std::string::npos; }

// One component after the other, following no link; with `make`, those that are missing are made.
Result<UniqueFd> walk(const UniqueFd& directory, std::string_view relative, bool make) {
  auto walked = open_directory_at(directory, ".");
  while (walked && !relative.empty()) {
    const std::string name(relative.substr(0, relative.find('/')));
    relative.remove_prefix(std::min(relative.size(), name.size() + 1));
    if (name.empty()) continue;
    if (make && ::mkdirat(walked->get(), name.c_str(), kPrivateDirectory) != 0 && errno != EEXIST) return no(name, errno);
    walked = open_directory_at(*walked, name);
  }
  return walked;
}

Result<FileFacts> facts_at(const UniqueFd& parent, const std::string& name, const std::string& shown) {
  struct stat st {};
  if (::fstatat(parent.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return no(shown, errno);
  return to_facts(st);
}

// A format sees regular files of one directory, and no more bytes of them than it may have for its table.
class FilesOfDirectory : public transfer::FileAccess {
 public:
  FilesOfDirectory(const UniqueFd& directory, std::size_t most) : directory_(directory), left_(most) {}

  Result<std::vector<std::string>> names(const std::string& below) override {
    if (below.empty()) return list_names(directory_);
    const auto opened = open_beneath(directory_, below);
    return opened ? list_names(*opened) : fail(opened.error());
  }

  Result<std::uint64_t> size(const std::string& name) override {
    if (auto opened = open(name); !opened) return fail(opened.error());
    const auto facts = facts_of(file_);
    if (!facts) return fail(facts.error());
    return facts->size;
  }

  Result<std::string> read(const std::string& name, std::uint64_t offset, std::uint64_t size) override {
    if (auto opened = open(name); !opened) return fail(opened.error());
    if (size > left_) return fail(ErrorCode::damaged, "its table of contents is too large");
    left_ -= size;
    std::string bytes(static_cast<std::size_t>(size), '\0');
    const auto have = read_at(file_, offset, bytes.data(), bytes.size());
    if (!have) return fail(have.error());
    if (*have < bytes.size()) return fail(ErrorCode::unavailable, name + " became shorter while it was read");
    return bytes;
  }

 private:
  Status open(const std::string& name) {
    if (file_ && name == name_) return {};
    auto file = open_file_beneath(directory_, name);
    if (!file) return fail(file.error());
    file_ = std::move(*file);
    name_ = name;
    return {};
  }

  const UniqueFd& directory_;
  std::uint64_t left_;
  UniqueFd file_;
  std::string name_;  // of file_
};

}  // namespace

Error system_error(std::string_view path, int error_number) {
  const ErrorCode code = error_number == ENOENT                             ? ErrorCode::not_found
                         : error_number == ELOOP || error_number == ENOTDIR ? ErrorCode::damaged
                                                                            : ErrorCode::io;
  return Error{code, std::string(path) + ": " + std::generic_category().message(error_number), ""};
}

// The kernel lets a process follow the links of its own /proc/PID/fd and cwd whatever its rights are, so that a path through them would
// lead into directories that another user's work keeps open here. Before Linux 5.6 this cannot be asked for.
Result<UniqueFd> open_directory(const std::string& path) {
  UniqueFd directory = open_by_rules(AT_FDCWD, path, RESOLVE_NO_MAGICLINKS);
  if (!directory && errno == ENOSYS) directory = UniqueFd(::open(path.c_str(), kDirectoryFlags));
  if (!directory) return no(path, errno);
  return directory;
}

Result<UniqueFd> open_directory_below(const std::string& top, const std::string& path) {
  const std::string prefix = top.ends_with('/') ? top : top + "/";
  if (top.empty() || !path.starts_with(prefix)) return open_directory(path);
  const auto directory = open_directory(top);
  if (!directory) return fail(directory.error());
  return open_beneath(*directory, path.substr(std::min(path.find_first_not_of('/', prefix.size()), path.size())));
}

Result<UniqueFd> open_beneath(const UniqueFd& directory, const std::string& relative) {
  if (leads_out(relative)) return wrong(relative, "not below its directory");
  UniqueFd opened = open_by_rules(directory.get(), relative.empty() ? "." : relative, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  if (!opened && errno == ENOSYS) return walk(directory, relative, false);
  if (!opened) return no(relative, errno);
  return opened;
}

Result<UniqueFd> open_directory_at(const UniqueFd& parent, const std::string& name) {
  UniqueFd directory(::openat(parent.get(), name.c_str(), kDirectoryFlags | O_NOFOLLOW));
  if (!directory) return no(name, errno);
  return directory;
}

Result<FileFacts> facts_beneath(const UniqueFd& directory, const std::string& relative) {
  std::string name;
  const auto parent = open_parent(directory, relative, name);
  if (!parent) return fail(parent.error());
  return facts_at(*parent, name, relative);
}

Result<FileFacts> facts_of(const UniqueFd& file) {
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return no("file", errno);
  return to_facts(st);
}

Result<UniqueFd> open_file_beneath(const UniqueFd& directory, const std::string& relative) {
  std::string name;
  const auto parent = open_parent(directory, relative, name);
  if (!parent) return fail(parent.error());
  // Checked before it is opened, because opening alone can have effects on a device; and after, because it may have
  // been exchanged in between.
  const auto before = facts_at(*parent, name, relative);
  if (!before) return fail(before.error());
  if (before->kind == FileFacts::Kind::link) return wrong(relative, "a symbolic link");
  if (before->kind != FileFacts::Kind::regular) return wrong(relative, "not a regular file");
  UniqueFd file(::openat(parent->get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return no(relative, errno);
  const auto after = facts_of(file);
  if (!after) return fail(after.error());
  if (after->kind != FileFacts::Kind::regular) return wrong(relative, "not a regular file");
  return file;
}

Result<std::vector<std::string>> list_names(const UniqueFd& directory) {
  // A descriptor of its own: reading a directory moves the position, and fdopendir takes ownership.
  const int fd = ::openat(directory.get(), ".", kDirectoryFlags);
  if (fd < 0) return no("directory", errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (!stream) {
    const int error_number = errno;
    ::close(fd);
    return no("directory", error_number);
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == kDirectoryNames) return fail(ErrorCode::limit, "it holds more than " + std::to_string(kDirectoryNames) + " names");
    names.emplace_back(name);
  }
  if (errno != 0) return no("directory", errno);
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::size_t> read_at(const UniqueFd& file, std::uint64_t offset, char* to, std::size_t size) {
  std::size_t have = 0;
  while (have < size) {
    const ssize_t n = ::pread(file.get(), to + have, size - have, static_cast<off_t>(offset + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return no("read", errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  return have;
}

Result<FileContent> read_beneath(const UniqueFd& directory, const std::string& relative, std::size_t limit) {
  const auto file = open_file_beneath(directory, relative);
  if (!file) return fail(file.error());
  const auto facts = facts_of(*file);
  if (!facts) return fail(facts.error());
  if (facts->size > limit) return fail(ErrorCode::damaged, relative + " is larger than " + std::to_string(limit) + " bytes");
  FileContent content{std::string(static_cast<std::size_t>(facts->size), '\0'), *facts};
  const auto have = read_at(*file, 0, content.bytes.data(), content.bytes.size());
  if (!have) return fail(have.error());
  content.bytes.resize(*have);
  return content;
}

std::string contents_file(const UniqueFd& directory, const transfer::Format& format, const std::string& base) {
  std::string usual = format.contents_name(base);
  if (format.other_contents.empty() || facts_beneath(directory, usual)) return usual;
  for (const std::string_view other : format.other_contents)
    if (facts_beneath(directory, std::string(other))) return std::string(other);
  return usual;
}

Result<FileContent> read_contents(const UniqueFd& directory, const transfer::Format& format, const std::string& base) {
  const std::string name = contents_file(directory, format, base);
  if (format.table == nullptr) return read_beneath(directory, name, format.contents_bytes);
  const auto file = open_file_beneath(directory, name);
  if (!file) return fail(file.error());
  const auto before = facts_of(*file);
  if (!before) return fail(before.error());
  FilesOfDirectory files(directory, format.contents_bytes);
  auto table = format.table(files, base);
  if (!table) return fail(table.error());
  const auto after = facts_beneath(directory, name);
  if (!after) return fail(after.error());
  if (*after != *before) return fail(ErrorCode::unavailable, name + " changed while it was read");
  return FileContent{std::move(*table), *after};
}

Result<SharesHere> read_shares(const UniqueFd& directory, const transfer::Format& format, const std::string& base) {
  FilesOfDirectory files(directory, format.contents_bytes);
  auto read = transfer::read_shares(files, format, base);
  if (!read) return fail(read.error());
  std::string first = read->told.files.front().name;
  const auto facts = facts_beneath(directory, first);
  if (!facts) return fail(facts.error());
  return SharesHere{{std::move(read->table), *facts}, std::move(first), std::move(read->told)};
}

bool is_broken_off(const UniqueFd& directory, const transfer::Format& format, const std::string& base, bool usual) {
  if (format.broken_off == nullptr || facts_beneath(directory, contents_file(directory, format, base))) return false;
  FilesOfDirectory files(directory, 0);
  return format.broken_off(files, base, usual);
}

Result<Opened> open_contents(const UniqueFd& directory, const transfer::CheckpointInfo& info, const std::string& base) {
  const transfer::Format& format = transfer::format_of(info.format);
  if (info.is_share()) {
    auto here = format.lacks == nullptr ? fail(ErrorCode::refused, "its format has no shares") : read_shares(directory, format, base);
    if (!here) return fail(here.error());
    return Opened{std::move(here->first), std::move(here->content), true};
  }
  auto content = read_contents(directory, format, base);
  if (!content) return fail(content.error());
  return Opened{contents_file(directory, format, base), std::move(*content), false};
}

Result<std::unique_ptr<transfer::Contents>> Opened::parse(const transfer::Format& format, const std::string& base) const {
  return share ? transfer::parse_shares(content.bytes) : format.parse(content.bytes, base);
}

std::uint64_t place_of(const FileFacts& facts) {
  return ((facts.inode * 0x9e3779b97f4a7c15ull) ^ static_cast<std::uint64_t>(facts.changed_ns)) | 1;
}

// Some file systems cannot guarantee that in one step: then the name is looked up first.
bool rename_new(const UniqueFd& from, const std::string& name, const UniqueFd& to, const std::string& new_name) {
  if (::renameat2(from.get(), name.c_str(), to.get(), new_name.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (::faccessat(to.get(), new_name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
    return false;
  }
  return ::renameat(from.get(), name.c_str(), to.get(), new_name.c_str()) == 0;
}

Result<UniqueFd> make_beneath(const UniqueFd& directory, const std::string& relative) {
  if (leads_out(relative)) return wrong(relative, "not below its directory");
  return walk(directory, relative, true);
}

std::string without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path);
}

std::pair<std::string, std::string> split_path(std::string_view path) {
  const std::string clean = without_trailing_slashes(path);
  const auto slash = clean.rfind('/');
  if (slash == std::string::npos) return {".", clean};
  const std::string parent = without_trailing_slashes(std::string_view(clean).substr(0, slash + 1));
  return {parent, clean.substr(slash + 1)};
}

FilesPlace place_of_files(const transfer::CheckpointInfo& info) {
  auto [parent, base] = split_path(info.path);
  return {transfer::format_of(info.format).directory ? info.path : std::move(parent), std::move(base)};
}

}  // namespace dtrain::store
