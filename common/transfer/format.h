// All that differs between checkpoint formats. A format takes names and bytes and opens no file;
// agent/store/checkpoint_* walks directories, reads, renames and removes. formats.cpp has the table; each format has
// a file of its own. docs/adding.md says how to add one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/transfer/checkpoint.h"

namespace dtrain::transfer {

// A stretch of a file whose bytes are verified together.
struct Part {
  std::string file;
  std::uint64_t offset = 0, size = 0;
  bool whole = false;      // the file has no other bytes
  std::uint64_t cost = 1;  // the work for each byte, next to that of a checksum: more if it is unpacked
};

// Checks one part's bytes as they stream by, once.
class PartCheck {
 public:
  virtual ~PartCheck() = default;
  virtual void feed(std::string_view bytes) = 0;
  virtual bool finish() = 0;
};

// The files in the directory of a checkpoint, as far as a format may look at them for its table. Together no more than its
// `contents_bytes` are read. Errors: not_found; damaged (no regular file, or too much was asked for); io; unavailable (it became shorter).
class FileAccess {
 public:
  virtual ~FileAccess() = default;
  // Sorted, of everything that is in it or in a directory below. Error: there is no such directory.
  virtual Result<std::vector<std::string>> names(const std::string& below = "") = 0;
  virtual Result<std::uint64_t> size(const std::string& name) = 0;
  virtual Result<std::string> read(const std::string& name, std::uint64_t offset, std::uint64_t size) = 0;  // so many, or an Error
};

// The files of one checkpoint, by its table of contents: the one file that is written last.
class Contents {
 public:
  struct File {
    std::string name;
    std::uint64_t size = 0;
    bool exactly = false;  // false: at least so many bytes
  };
  virtual ~Contents() = default;
  std::int64_t step = 0;
  std::vector<File> files;  // all others: none if one file is the whole checkpoint

  // The parts that the deep check reads; parts of one file follow each other. A file that is not `exactly` of a size
  // is looked at separately.
  virtual std::size_t part_count() const = 0;
  virtual Part part(std::size_t i) const = 0;
  virtual std::unique_ptr<PartCheck> check(std::size_t i) const = 0;
  virtual std::string damage(std::size_t i) const = 0;  // the text that follows the file's name if the check fails
};

// A file beside checkpoints that scripts use to find the newest one. dtrain does not decide by it, but keeps it correct.
struct Hint {
  std::string_view name;
  std::size_t bytes;  // larger: refused unread
  // Paths of the checkpoints in directories below `directory`, relative to it; empty if the text cannot be read.
  std::vector<std::string> (*mentioned)(std::string_view text, std::string_view directory);
  // The text without the checkpoint `removed`; if that was the newest, the text names `successor` ("": none) instead. Paths
  // are absolute; `home` is the hint's directory. nullopt: the text does not mention it; "": nothing is left to name.
  std::optional<std::string> (*without)(std::string_view text, std::string_view home, std::string_view removed, std::string_view successor);
  // The text that names home/`relative` as the newest, as of `changed_ns`. nullopt: the text stays, because
  // `only_first` is set and it names another one.
  std::optional<std::string> (*with)(std::string_view text, const std::string& home, const std::string& relative, std::int64_t changed_ns,
                                     bool only_first);
};

// A possible checkpoint, by its name. `surely`: files of other programs are never named like this.
struct Found {
  std::string base;
  bool surely = false;
};

struct FileTable;

// The rules of one format. A checkpoint is a directory of its own, or files among others with a common beginning:
// `base`, the end of its path, with endings.
struct Format {
  std::string_view name;     // in job files
  std::string_view seen_as;  // for messages: what is looked for, and what a user may name
  std::string_view named_as;
  bool directory;
  std::string (*contents_name)(std::string_view base);
  std::size_t contents_bytes;  // larger: refused unread
  // Errors: the cause alone. damaged: it is of this format, and wrong or cut. refused: a variant that is not supported.
  Result<std::unique_ptr<Contents>> (*parse)(std::string_view bytes, std::string_view base);
  // True if a file of this name may belong to the checkpoint, the contents included.
  bool (*is_file_of)(std::string_view file_name, std::string_view base);

  // For formats of directories: what the contents file may be called where that name is not there. The first that is there counts.
  std::span<const std::string_view> other_contents = {};
  // For formats whose table is not all of the contents file, but a stretch of it, or gathered from several files: reads that. The result is
  // what `parse` is given, and the identity of the checkpoint. Errors as of `parse`; refused: not of this format at all.
  Result<std::string> (*table)(FileAccess& files, std::string_view base) = nullptr;
  // For formats to which each rank adds files, perhaps on its own host's disk alone: true if a file of this name is one.
  bool (*is_file_of_rank)(std::string_view file_name) = nullptr;
  // Of those formats: true if such a file is told as it is, unless its ending says what it is (kind_by_ending); of others only the size.
  bool (*is_text)(std::string_view file_name) = [](std::string_view) { return true; };
  // Of those formats: what of the files that are here says which files there must be, as `lacks` reads it; "": none of these does.
  Result<std::string> (*list_of_all)(FileAccess& files, const std::vector<FileTable>& tables) = nullptr;
  // What is missing if there are only files of these names; "": nothing.
  std::string (*lacks)(std::string_view list, const std::vector<std::string>& names) = nullptr;
  // For formats of directories whose scripts take the newest by its name alone: true if one without a contents file is what a save left
  // that was broken off. `usual`: such directories are surely of this format, since the job names it, or others beside this one are.
  bool (*broken_off)(FileAccess& files, std::string_view base, bool usual) = nullptr;
  bool by_auto = true;  // `format: auto` looks for it, too: not where other programs write such files beside their checkpoints
  // True if the name alone says that this is a checkpoint. With `format: auto` only such are looked for, and `keep` removes only such:
  // other files of the user may have the same ending.
  bool (*named_clearly)(std::string_view base) = [](std::string_view) { return true; };

  // For formats without a directory: the possible checkpoints in a directory that holds these names, sorted.
  std::vector<Found> (*find)(const std::vector<std::string>& names) = [](const auto&) { return std::vector<Found>{}; };
  bool (*may_be)(std::string_view contents) = [](std::string_view) { return true; };  // for one that was not found `surely`
  std::string_view (*base_of)(std::string_view contents_name) = [](std::string_view) { return std::string_view(); };  // "": none
  std::int64_t (*step_of)(std::string_view base) = [](std::string_view) { return std::int64_t{0}; };  // if the contents cannot be read
  // a file that the contents do not name
  std::string (*optional_file)(std::string_view base) = [](std::string_view) { return std::string(); };
  const Hint* hint = nullptr;
};

// True if checkpoint.keep may remove it: nothing that could be something else of the user's.
bool may_be_removed(const CheckpointInfo& info);

std::span<const Format* const> formats();  // in the order of their numbers
const Format& format_of(FormatId id);

// True if the contents file of that checkpoint may have this name.
bool may_be_contents(const Format& format, std::string_view base, std::string_view name);

}  // namespace dtrain::transfer
