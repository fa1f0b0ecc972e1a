// Opens and reads files in a user's directory, which may contain anything: links that lead out of it, pipes that
// would block, files that grow or vanish. Below a directory no symbolic link is followed, and only regular files are
// opened, without blocking. Messages here give cause and path; callers add what they were doing.
//
// Error codes: not_found (it is not there), damaged (it is a link, a pipe, too large), io (the operating system
// reported an error).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/base/unique_fd.h"
#include "common/base/result.h"
#include "common/transfer/format.h"

namespace dtrain::store {

struct FileFacts {
  enum class Kind : unsigned char { regular, directory, link, other };
  Kind kind = Kind::other;
  std::uint64_t inode = 0, size = 0;
  std::int64_t changed_ns = 0;  // mtime
  bool operator==(const FileFacts&) const = default;
};

inline constexpr std::size_t kDirectoryNames = 100'000;  // entries looked at in one directory; more: Error{limit}

Error system_error(std::string_view path, int error_number);

// Follows symbolic links, but for those of /proc that lead to what a process has open: ELOOP.
Result<UniqueFd> open_directory(const std::string& path);
// Follows none below `top`, since others may write to a user's directory. A path that is not below it is opened as by open_directory().
Result<UniqueFd> open_directory_below(const std::string& top, const std::string& path);
// The directory "a/b" below that one; "" and ".": itself. Follows no symbolic link, and never leads out.
Result<UniqueFd> open_beneath(const UniqueFd& directory, const std::string& relative);
Result<UniqueFd> open_directory_at(const UniqueFd& parent, const std::string& name);
Result<UniqueFd> open_file_beneath(const UniqueFd& directory, const std::string& relative);
Result<FileFacts> facts_beneath(const UniqueFd& directory, const std::string& relative);
Result<FileFacts> facts_of(const UniqueFd& file);
Result<std::vector<std::string>> list_names(const UniqueFd& directory);  // sorted, without "." and ".."

struct FileContent {
  std::string bytes;
  FileFacts facts;
};
Result<FileContent> read_beneath(const UniqueFd& directory, const std::string& relative, std::size_t limit);

// What the contents file of that checkpoint is called in its directory: the first of its possible names that is there; else the first.
std::string contents_file(const UniqueFd& directory, const transfer::Format& format, const std::string& base);

// The table of contents of a checkpoint, and the facts of the file that it is in. Errors also as of transfer::Format::table; unavailable:
// that file changed meanwhile.
Result<FileContent> read_contents(const UniqueFd& directory, const transfer::Format& format, const std::string& base);

// The same of what this host has of a checkpoint, with the facts of the first of its files (transfer/shares.h).
struct SharesHere {
  FileContent content;
  std::string first;
  transfer::Shares shares;
};
Result<SharesHere> read_shares(const UniqueFd& directory, const transfer::Format& format, const std::string& base);

// What a save left that was broken off (Format::broken_off), which has no contents file.
bool is_broken_off(const UniqueFd& directory, const transfer::Format& format, const std::string& base, bool usual);

// The table of contents that `info` speaks of, and what it says: of a whole checkpoint, or of one host's share.
struct Opened {
  std::string name;  // the file of `facts`: the contents file, or the first of the share
  FileContent content;
  bool share = false;
  Result<std::unique_ptr<transfer::Contents>> parse(const transfer::Format& format, const std::string& base) const;
};
Result<Opened> open_contents(const UniqueFd& directory, const transfer::CheckpointInfo& info, const std::string& base);

// The same number on every host that sees this file, and another wherever there is a copy, or once it was written anew. Never 0.
std::uint64_t place_of(const FileFacts& facts);

// Up to `size` bytes at `offset`, fewer only at the end of the file. Retries what a signal interrupted.
Result<std::size_t> read_at(const UniqueFd& file, std::uint64_t offset, char* to, std::size_t size);

// Never replaces an existing file. False: errno says why; EEXIST or ENOTEMPTY: there is one.
bool rename_new(const UniqueFd& from, const std::string& name, const UniqueFd& to, const std::string& new_name);

// Like mkdir -p below a directory, following no link there; "" or ".": that directory. New directories are accessible
// only to their owner (0700).
Result<UniqueFd> make_beneath(const UniqueFd& directory, const std::string& relative);

// "/a/b//c/" -> {"/a/b", "c"}; "c" -> {".", "c"}.
std::pair<std::string, std::string> split_path(std::string_view path);
std::string without_trailing_slashes(std::string_view path);

// The directory that holds a checkpoint's files, and the last component of its path, from which their names may be formed.
struct FilesPlace {
  std::string directory, base;
};
FilesPlace place_of_files(const transfer::CheckpointInfo& info);

}  // namespace dtrain::store
