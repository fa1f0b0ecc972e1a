// Files of HDF5, as Keras writes them (.h5): a superblock says where the file ends, which shows every cut, and has a checksum since its
// version 2. The rest has none that would be the same in all files.
#include <array>
#include <bit>

#include "common/transfer/single_file.h"
#include "common/transfer/unproved_bytes.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::array<std::string_view, 2> kHdf5Endings{".h5", ".hdf5"};
constexpr std::string_view kHdf5Mark{"\x89HDF\r\n\x1a\n"};
constexpr std::uint64_t kFirstOther = 512,
                        kLastOther = 1 << 20;    // where the superblock may be if a user's block stands before it: powers of two
constexpr std::uint64_t kSuperblockBytes = 128;  // at most
constexpr std::size_t kHeadNumbers = 16;         // before the superblock in the table: the file's size, the superblock's place

tl::unexpected<Error> bad_hdf5(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

// Bob Jenkins' lookup3, which HDF5 uses as checksum of its metadata.
std::uint32_t lookup3(std::string_view bytes) {
  constexpr std::size_t kLookupBlock = 12;
  std::array<std::uint32_t, 3> s;
  s.fill(0xdeadbeef + static_cast<std::uint32_t>(bytes.size()));
  const auto add = [&](std::string_view some) {
    for (std::size_t i = 0; i < s.size() && 4 * i < some.size(); ++i)
      s[i] += static_cast<std::uint32_t>(from_little_endian(some.substr(4 * i, 4)));
  };
  auto& [a, b, c] = s;
  for (; bytes.size() > kLookupBlock; bytes.remove_prefix(kLookupBlock)) {
    add(bytes.substr(0, kLookupBlock));
    a -= c, a ^= std::rotl(c, 4), c += b;
    b -= a, b ^= std::rotl(a, 6), a += c;
    c -= b, c ^= std::rotl(b, 8), b += a;
    a -= c, a ^= std::rotl(c, 16), c += b;
    b -= a, b ^= std::rotl(a, 19), a += c;
    c -= b, c ^= std::rotl(b, 4), b += a;
  }
  if (bytes.empty()) return c;
  add(bytes);
  c ^= b, c -= std::rotl(b, 14);
  a ^= c, a -= std::rotl(c, 11);
  b ^= a, b -= std::rotl(a, 25);
  c ^= b, c -= std::rotl(b, 16);
  a ^= c, a -= std::rotl(c, 4);
  b ^= a, b -= std::rotl(a, 14);
  c ^= b, c -= std::rotl(b, 24);
  return c;
}

Result<std::string> hdf5_table(FileAccess& files, std::string_view base) {
  const std::string name(base);
  const auto size = files.size(name);
  if (!size) return fail(size.error());
  for (std::uint64_t at = 0; at <= kLastOther && at < *size; at = at == 0 ? kFirstOther : 2 * at) {
    const auto superblock = files.read(name, at, std::min(kSuperblockBytes, *size - at));
    if (!superblock) return superblock;
    if (!superblock->starts_with(kHdf5Mark)) continue;
    const auto samples = read_samples(files, name, at, *size);
    if (!samples) return samples;
    return to_little_endian(*size, 8) + to_little_endian(at, 8) + *superblock + *samples;
  }
  const auto head = files.read(name, 0, std::min<std::uint64_t>(*size, kHdf5Mark.size()));
  if (!head) return head;
  // The library writes the superblock when it closes the file.
  if (kHdf5Mark.starts_with(*head) || head->find_first_not_of('\0') == head->npos) return bad_hdf5("it is cut, or not finished yet");
  return fail(ErrorCode::refused, "it is not a file of HDF5");
}

// The addresses that a superblock has; `place` is its own.
struct Superblock {
  std::uint64_t base = 0, end = 0, root = 0;
};

Result<Superblock> read_superblock(std::string_view bytes) {
  const auto byte = [&](std::size_t at) { return at < bytes.size() ? static_cast<unsigned char>(bytes[at]) : 0u; };
  const unsigned version = byte(8);
  if (!bytes.starts_with(kHdf5Mark)) return bad_hdf5("it has no superblock");
  if (version > 3) return fail(ErrorCode::refused, "its superblock has version " + std::to_string(version) + ", which is not known here");
  const bool old = version < 2;
  const std::size_t offset_bytes = byte(old ? 13 : 9), length_bytes = byte(old ? 14 : 10);
  for (const std::size_t width : {offset_bytes, length_bytes})
    if (width != 4 && width != 8) return bad_hdf5("its superblock has numbers of " + std::to_string(width) + " bytes");
  const std::size_t first = old ? (version == 0 ? 24 : 28) : 12;
  const std::size_t all = first + 4 * offset_bytes + (old ? 2 * offset_bytes + 24 : 4);
  if (bytes.size() < all) return bad_hdf5("it is cut in its superblock");
  if (old && (byte(9) != 0 || byte(10) != 0 || byte(11) != 0 || byte(12) != 0 || byte(15) != 0))
    return bad_hdf5("its superblock has unknown versions");
  if (!old && from_little_endian(bytes.substr(all - 4, 4)) != lookup3(bytes.substr(0, all - 4)))
    return bad_hdf5("its superblock has another checksum");
  if (!old && (byte(11) & 5) != 0) return bad_hdf5("it was not closed by its writer");
  const auto address = [&](std::size_t i) { return from_little_endian(bytes.substr(first + i * offset_bytes, offset_bytes)); };
  return Superblock{address(0), address(2), address(old ? 5 : 3)};
}

Result<std::unique_ptr<Contents>> parse_hdf5(std::string_view table, std::string_view base) {
  if (table.size() < kHeadNumbers) return bad_hdf5("it is cut");
  const std::uint64_t size = from_little_endian(table.substr(0, 8)), place = from_little_endian(table.substr(8, 8));
  if (place > size) return bad_hdf5("it is cut");
  const auto superblock = read_superblock(table.substr(kHeadNumbers, std::min(kSuperblockBytes, size - place)));
  if (!superblock) return fail(superblock.error());
  if (superblock->base != place) return bad_hdf5("its superblock says that it lies elsewhere");
  if (superblock->end != size)
    return bad_hdf5("it has " + std::to_string(size) + " bytes instead of " + std::to_string(superblock->end) +
                    ": it is cut, or not finished yet");
  if (superblock->root >= superblock->end - place) return bad_hdf5("its root lies behind its end");
  auto contents = std::make_unique<UnprovedBytes>(std::string(base), 0, size);
  contents->step = step_of_name(SingleFile<kHdf5Endings>::stem(base));
  return contents;
}

constexpr Format hdf5_format() {
  Format f = SingleFile<kHdf5Endings>::format("hdf5", "a file of HDF5 (Keras), only if the job file names the format",
                                              "a file of HDF5 (.h5, .hdf5)", kLastOther + kSamples * kSampleBytes);
  f.parse = parse_hdf5;
  f.table = hdf5_table;
  f.by_auto = false;
  return f;
}

}  // namespace

extern const Format kHdf5Format = hdf5_format();

}  // namespace dtrain::transfer
