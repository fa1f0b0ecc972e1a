// Reads the directory at the end of a zip file, ZIP64 included: what torch.save, numpy.savez and Keras write.
//
//   (local header | data | perhaps a descriptor) of each member | central directory | ZIP64 end and its locator, perhaps | end, comment
//
// A writer puts the end there last, so that a file without it is not finished. Nothing but the directory is read here; zip_check.h compares
// the members with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/format.h"

namespace dtrain::transfer {

inline constexpr std::size_t kZipMembers = 200'000;          // more: refused
inline constexpr std::size_t kZipDirectoryBytes = 64 << 20;  // larger: refused unread
inline constexpr std::uint64_t kZipLocalHeaderBytes = 30;    // without name and extra fields
inline constexpr std::uint16_t kZipStored = 0, kZipDeflated = 8;
inline constexpr std::uint16_t kZipHasDescriptor = 8;  // flag: checksum and sizes follow the data, and may lack in the local header

struct ZipMember {
  std::string name;
  std::uint64_t begin = 0, end = 0;    // from its local header to the next member's, or to the directory
  std::uint64_t packed = 0, size = 0;  // bytes in the file, and unpacked
  std::uint32_t crc = 0;               // of the unpacked bytes
  std::uint16_t method = kZipStored, flags = 0;
};

struct ZipDirectory {
  std::vector<ZipMember> members;  // in the order of their places
};

// A file may hold several zips, one after the other: each is a stretch of it.
struct ZipPlace {
  std::uint64_t begin = 0, end = 0;
};

// The bytes from the directory to the end of the zip whose end is at `end` in the file, behind its place (two numbers of 8 bytes).
// Error{damaged}: a zip that is cut or wrong; refused: something else.
Result<std::string> read_zip_table(FileAccess& files, const std::string& name, std::uint64_t end);
ZipPlace zip_place(std::string_view table);

// Takes what read_zip_table() returned, or hostile bytes. The members lie within the zip and do not overlap.
// Errors as of Format::parse.
Result<ZipDirectory> parse_zip_table(std::string_view table);

// The number that these little-endian bytes are.
std::uint64_t from_little_endian(std::string_view bytes);
std::string to_little_endian(std::uint64_t number, std::size_t bytes);

// The value of the extra field `id`; empty if there is none.
std::string_view zip_extra(std::string_view extra, std::uint16_t id);
inline constexpr std::uint16_t kZip64Extra = 1;

}  // namespace dtrain::transfer
