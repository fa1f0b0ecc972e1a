// CRC-32C (Castagnoli), as LevelDB tables and TensorFlow bundles use it.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrain::transfer {

// The checksum of a + b is crc32c_extend(crc32c_extend(0, a), b). Uses the processor's instructions where it has any.
std::uint32_t crc32c_extend(std::uint32_t crc, std::string_view bytes);
inline std::uint32_t crc32c(std::string_view bytes) { return crc32c_extend(0, bytes); }

// Checksums are stored masked: a checksum over bytes that contain checksums would be weak otherwise.
inline constexpr std::uint32_t kCrcMaskDelta = 0xa282ead8u;
constexpr std::uint32_t crc32c_mask(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + kCrcMaskDelta; }

}  // namespace dtrain::transfer
