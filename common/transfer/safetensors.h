// Reads the head of a safetensors file (a public format):
//
//   length of the header, 8 bytes little-endian | header, a JSON object | the tensors' bytes
//
// The header says where each tensor lies. Together they cover all bytes that follow, each once. No checksum exists: a file that is cut is
// found, a flipped bit in a tensor is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/transfer/format.h"
#include "common/transfer/unproved_bytes.h"

namespace dtrain::transfer {

inline constexpr std::uint64_t kSafetensorsHeaderBytes = 100'000'000;  // larger: refused, as its own readers do
inline constexpr std::size_t kSafetensorsTableBytes = kSafetensorsHeaderBytes + 16 + kSamples * kSampleBytes;

// The file's size, its head, and samples of its tensors: those of another step have the same head, and must not be taken for this one.
// Error{damaged}: it is cut, or nothing of the kind.
Result<std::string> read_safetensors_table(FileAccess& files, const std::string& name);

// The file `name`, by its table or by hostile bytes, as the only file of a checkpoint.
Result<std::unique_ptr<Contents>> safetensors_contents(std::string_view table, std::string name);

}  // namespace dtrain::transfer
