// All that differs between formats of checkpoints. A format takes names and bytes and opens no file: who walks directories, reads, renames
// and removes is agent/store/checkpoint_*. The table: formats.cpp; each format has a file of its own. Adding one: docs/adding.md.
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
  bool whole = false;  // the file has no other bytes
};

// Are a part's bytes what was written? They stream by, once.
class PartCheck {
 public:
  virtual ~PartCheck() = default;
  virtual void feed(std::string_view bytes) = 0;
  virtual bool finish() = 0;
};

// What belongs to one checkpoint, as its table of contents says: the one file that is written last.
class Contents {
 public:
  struct File {
    std::string name;
    std::uint64_t size = 0;
    bool exactly = false;  // else: at least so many bytes
  };
  virtual ~Contents() = default;
  std::int64_t step = 0;
  std::vector<File> files;  // all others

  // What the deep check reads, parts of one file in a row. Each file that is not `exactly` of a size is looked at beside them.
  virtual std::size_t part_count() const = 0;
  virtual Part part(std::size_t i) const = 0;
  virtual std::unique_ptr<PartCheck> check(std::size_t i) const = 0;
  virtual std::string damage(std::size_t i) const = 0;  // what to say, behind the file's name, where the check fails
};

// A file beside checkpoints by which scripts find the newest. Nothing is decided by it; it is kept true.
struct Hint {
  std::string_view name;
  std::size_t bytes;  // larger: refused unread
  // Checkpoints in directories below `directory`, relative to it. Of what cannot be read: none.
  std::vector<std::string> (*mentioned)(std::string_view text, std::string_view directory);
  // The text without the checkpoint `removed`; where it was the newest, `successor` ("": none) is named instead. Paths are absolute, `home`
  // is the hint's directory. nullopt: it says nothing of it; "": nothing is left to name.
  std::optional<std::string> (*without)(std::string_view text, std::string_view home, std::string_view removed,
                                        std::string_view successor);
  // The text that names home/`relative` as the newest, as of `changed_ns`. nullopt: it stays, since `only_first` and another one is named.
  std::optional<std::string> (*with)(std::string_view text, const std::string& home, const std::string& relative, std::int64_t changed_ns,
                                     bool only_first);
};

// What may be a checkpoint, by its name. `surely`: no other program's files are called so.
struct Found {
  std::string base;
  bool surely = false;
};

// A checkpoint is a directory of its own, or files beside others that are named alike: `base`, the end of its path, with endings.
struct Format {
  std::string_view name;      // in job files
  std::string_view seen_as;   // what is looked for, and what a user may name, for messages
  std::string_view named_as;
  bool directory;
  std::string (*contents_name)(std::string_view base);
  std::size_t contents_bytes;  // larger: refused unread
  Result<std::unique_ptr<Contents>> (*parse)(std::string_view bytes, std::string_view base);  // Error: the cause alone
  // May a file of this name be one of its own, the contents included?
  bool (*is_file_of)(std::string_view file_name, std::string_view base);

  // Of files that are named alike. In a directory that holds these names, sorted: what may be checkpoints.
  std::vector<Found> (*find)(const std::vector<std::string>& names) = [](const auto&) { return std::vector<Found>{}; };
  bool (*may_be)(std::string_view contents) = [](std::string_view) { return true; };  // what was not found `surely`
  std::string_view (*base_of)(std::string_view contents_name) = [](std::string_view) { return std::string_view(); };  // "": none
  std::int64_t (*step_of)(std::string_view base) = [](std::string_view) { return std::int64_t{0}; };  // where the contents cannot be read
  std::string (*optional_file)(std::string_view base) = [](std::string_view) { return std::string(); };  // that contents do not name
  const Hint* hint = nullptr;
};

std::span<const Format* const> formats();  // in the order of their numbers
const Format& format_of(FormatId id);

}  // namespace dtrain::transfer
