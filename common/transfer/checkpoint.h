// What a checkpoint on disk is, and how complete it is. The readers here take bytes; the agent walks directories and
// reads files (agent/store/checkpoint_store.h). Formats: docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::transfer {

// A format's index in the table (formats.cpp), as it is stored and sent. format.h has the format's rules.
enum class FormatId : unsigned char {};
FormatId enum_last(FormatId);
// The version of the ledger that a checkpoint of this format needs (docs/upgrading.md).
constexpr std::uint32_t since_version(FormatId format) { return static_cast<unsigned>(format) > 1 ? 3 : 1; }

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
  }
};

// True if the checkpoint lies in that directory, or is that directory or prefix itself.
inline bool is_in(const CheckpointInfo& info, std::string_view dir) {
  while (dir.size() > 1 && dir.ends_with('/')) dir.remove_suffix(1);
  return info.path.starts_with(dir) && (info.path.size() == dir.size() || dir == "/" || info.path[dir.size()] == '/');
}

}  // namespace dtrain::transfer
