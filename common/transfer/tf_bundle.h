// TensorFlow's V2 checkpoint format ("tensor bundle"): P.index, a table of contents, and the data files
// P.data-KKKKK-of-NNNNN. Written from the public format description; see docs/checkpoints.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::transfer {

inline constexpr std::size_t kBundleIndexBytes = 64 << 20;  // of P.index; larger: refused unread
inline constexpr std::size_t kBundleEntries = 1'000'000;    // tensors and slices; more: refused
inline constexpr std::size_t kBundleNameBytes = 64 << 20;   // all names together; more: refused
inline constexpr std::uint32_t kBundleShards = 99'999;      // five digits in the file name; more: refused
inline constexpr std::uint64_t kBundleMinConsumer = 1;      // the newest requirement on readers that is known

// Data types whose bytes are checksummed in a special way (tensorflow/core/framework/types.proto).
inline constexpr std::uint64_t kDtString = 7;
inline constexpr std::uint64_t kDtVariant = 21;

// One tensor, or one slice of a partitioned one.
struct BundleEntry {
  std::string name;
  std::uint64_t dtype = 0;
  std::uint64_t elements = 1;  // product of the shape
  std::uint32_t shard = 0;
  std::uint64_t offset = 0, size = 0;  // in the shard's data file; offset + size does not wrap
  std::uint32_t masked_crc = 0;
};

struct BundleIndex {
  std::uint32_t shards = 0;
  std::vector<BundleEntry> entries;        // with bytes of their own, ordered by shard and offset, not overlapping
  std::vector<std::uint64_t> shard_bytes;  // least size of each data file
};

// Verifies every checksum in the index. Error::damaged with the cause alone; refused: a format not supported here.
Result<BundleIndex> parse_bundle_index(std::string_view bytes);

// Checks one entry's bytes as they stream by.
class BundleEntryCheck {
 public:
  explicit BundleEntryCheck(const BundleEntry& entry);
  void feed(std::string_view bytes);
  bool finish();  // after exactly entry.size bytes: true if they are what was written

 private:
  enum class Part : unsigned char { length, payload, checksum, done };
  void step(char byte);
  void end_of_length();
  void end_of_checksum();

  const bool text_, variant_;  // neither: plain bytes
  const std::uint32_t masked_crc_;
  std::uint64_t elements_left_;
  std::uint64_t payload_left_ = 0;
  std::string varint_, checksum_;
  Part part_ = Part::length;
  std::uint32_t crc_ = 0;
  bool good_ = true;
};

// "P.index", "P.data-00001-of-00002"
std::string bundle_index_name(std::string_view prefix);
std::string bundle_data_name(std::string_view prefix, std::uint32_t shard, std::uint32_t shards);

// "P" when the name is an index file of a bundle P, else "". is_bundle_file(): an index, data or meta file.
std::string_view bundle_prefix_of_index(std::string_view file_name);
bool is_bundle_file(std::string_view file_name, std::string_view prefix);
bool is_bundle_data_file(std::string_view file_name, std::string_view prefix);

// The number after the prefix's last '-' ("model.ckpt-1200" -> 1200; a ".ckpt" after it is ignored: "cp-0007.ckpt" ->
// 7); 0 if there is none.
std::int64_t bundle_step(std::string_view prefix);

}  // namespace dtrain::transfer
