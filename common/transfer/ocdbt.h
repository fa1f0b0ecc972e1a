// Reads the databases of TensorStore in which Orbax keeps arrays (OCDBT): manifest.ocdbt names the root of a tree, whose nodes and values
// lie in data files. The manifest and all nodes have a CRC-32C; values have none, but it is known where each ends.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/transfer/format.h"

namespace dtrain::transfer {

inline constexpr std::string_view kOcdbtManifest = "manifest.ocdbt";
inline constexpr std::size_t kOcdbtManifestBytes = 16 << 20;  // larger: refused unread
inline constexpr std::size_t kOcdbtNodeBytes = 128 << 20;     // unpacked; Orbax allows 100 MB
inline constexpr std::size_t kOcdbtNodes = 100'000;           // in one tree; more: refused

// How many bytes each data file has at least, by its path in the checkpoint.
using LeastBytes = std::map<std::string, std::uint64_t>;

// The newest version in `directory` ("", or with a slash at its end). Checks the manifest and every node of the tree, and notes in `least`
// where nodes and values end. Errors: damaged; refused: a variant that is not supported; those of FileAccess.
Status read_ocdbt(FileAccess& files, const std::string& directory, LeastBytes& least);

}  // namespace dtrain::transfer
