// What a checkpoint on disk is, and how complete it is. The readers here take bytes; the agent walks directories and
// reads files (agent/store/checkpoint_store.h). Formats: docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/base/since.h"

namespace dtrain::transfer {

// A format's index in the table (formats.cpp), as it is stored and sent. format.h has the format's rules.
enum class FormatId : unsigned char {};
FormatId enum_last(FormatId);
// The version of the ledger that a checkpoint of this format needs (docs/upgrading.md).
constexpr std::uint32_t since_version(FormatId format) { return static_cast<unsigned>(format) > 1 ? 3 : 1; }

// What one host has of a checkpoint whose ranks each wrote to their own host's disk (common/transfer/shares.h).
struct Shares {
  struct File {
    std::string name;
    std::uint64_t size = 0;
    std::string digest;  // of its table of contents: equal names with other digests are of other checkpoints
    template <class V>
    void fields(V& v) {
      v("name", name);
      v("size", size);
      v("digest", digest);
    }
    bool operator==(const File&) const = default;
  };
  std::vector<File> files;  // sorted by name
  std::string list;         // which files there must be, for Format::lacks; "": the file that says it is on another host
  template <class V>
  void fields(V& v) {
    v("files", files);
    v("list", list);
  }
  bool operator==(const Shares&) const = default;
};

// One candidate found under checkpoint.dir.
struct CheckpointInfo {
  FormatId format{};
  std::string path;  // the value for DTRAIN_RESTORE_FROM: a directory, a file, or a TensorFlow prefix
  std::int64_t step = 0;
  bool complete = false;  // the shallow check held: index or manifest parses, every file has its size
  std::string defect;     // why not, when not complete
  std::uint64_t bytes = 0;
  std::string digest;       // BLAKE2b-256 hex over the table of contents: identity of this content
  std::uint64_t place = 0;  // identifies these very files: hosts that see the same directory get the same number; 0: not known
  Shares shares;            // not empty: the host has only this of it, `complete` is not set, and `digest` is of what is here
  template <class V>
  void fields(V& v) {
    v("format", format);
    v("path", path);
    v("step", step);
    v("complete", complete);
    v("defect", defect);
    v("bytes", bytes);
    v("digest", digest);
    v("place", place);
    v("shares", shares, Since{3});
  }
  bool is_share() const { return !shares.files.empty(); }
};

// True if the checkpoint lies in that directory, or is that directory or prefix itself.
inline bool is_in(const CheckpointInfo& info, std::string_view dir) {
  while (dir.size() > 1 && dir.ends_with('/')) dir.remove_suffix(1);
  return info.path.starts_with(dir) && (info.path.size() == dir.size() || dir == "/" || info.path[dir.size()] == '/');
}

}  // namespace dtrain::transfer
