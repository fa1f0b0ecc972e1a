// Reads a LevelDB table (the public "sstable" format) held in memory, which is the format of a TensorFlow bundle's
// index.
//
//   data blocks ... | metaindex block | index block | footer of 48 bytes
//   block: entries with shared key prefixes, restart array | type byte | masked CRC-32C of block and type
//
// Every block's checksum is verified. Keys must ascend and blocks must not overlap, so that work and memory stay in
// proportion to the input, whatever it claims.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "common/base/result.h"

namespace dtrain::transfer {

inline constexpr std::size_t kTableFooterBytes = 48;
inline constexpr std::uint64_t kTableMagic = 0xdb4775248b80fb57ull;
inline constexpr std::size_t kTableKeyBytes = 64 << 10;  // a longer key: refused
inline constexpr std::size_t kTableTrailerBytes = 5;     // type byte and checksum behind each block

// Both views are valid only during the call. An error ends the reading and is returned.
using TableVisitor = std::function<Status(std::string_view key, std::string_view value)>;

// True when the bytes end like a table: cheap, and says nothing about the rest.
bool has_table_magic(std::string_view bytes);

// ErrorCode::damaged with the cause alone as its message; ErrorCode::refused for a compressed block.
Status read_table(std::string_view bytes, const TableVisitor& visit);

}  // namespace dtrain::transfer
