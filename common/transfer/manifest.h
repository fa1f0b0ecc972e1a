// MANIFEST.json, by which any training script can declare its checkpoint complete (docs/checkpoints.md).
//   {"version":1,"step":N,"files":[{"name":"w.npy","size":4096,"sha256":"64 hex digits"}, ...]}
// Read strictly where safety needs it: every value's type, no key twice, limited sizes and counts, names that stay
// inside the checkpoint. Unknown keys are skipped, so that a script may add its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::transfer {

inline constexpr std::string_view kManifestName = "MANIFEST.json";
inline constexpr std::size_t kManifestBytes = 16 << 20;  // of the file; larger: refused unread
inline constexpr std::size_t kManifestFiles = 100'000;   // more: refused
inline constexpr std::size_t kManifestNameBytes = 1024;  // of one file name; longer: refused
inline constexpr std::size_t kManifestDepth = 16;        // nesting below foreign keys; deeper: refused
inline constexpr std::int64_t kManifestVersion = 1;

struct ManifestFile {
  std::string name;        // relative to the checkpoint, components separated by '/'
  std::uint64_t size = 0;  // bytes
  std::string sha256;      // lower-case hex
};

struct Manifest {
  std::int64_t step = 0;  // from 0
  std::vector<ManifestFile> files;
};

// Error::damaged, whose message is the cause alone ("its step is missing"): the caller knows the path.
Result<Manifest> parse_manifest(std::string_view text);

// Relative, no empty, "." or ".." component, no NUL: it names something below the directory it is used in.
bool is_inner_name(std::string_view name);

}  // namespace dtrain::transfer
