// A cursor over untrusted bytes. Every call returns nullopt once something did not fit; nothing is ever read beyond
// the end. Numbers are little-endian. Variable-length ones (LEB128, as in LevelDB and protobuf) are accepted only in
// their shortest form, because a longer form of the same number suggests a flipped bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dtrain::transfer {

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  std::optional<std::uint64_t> varint();
  std::optional<std::uint32_t> fixed32();
  std::optional<std::uint64_t> fixed64();
  std::optional<std::string_view> take(std::uint64_t size);
  std::optional<std::string_view> length_prefixed();  // varint length, then that many bytes
  bool empty() const { return bytes_.empty(); }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

// One field of a protobuf message. `number` and `wire` say which of value and bytes is meant.
struct ProtoField {
  enum class Wire : unsigned char { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  std::uint32_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;  // varint, fixed64, fixed32
  std::string_view bytes;   // bytes: points into the input

  bool is(std::uint32_t n, Wire w) const { return number == n && wire == w; }
};

// Reads the fields of one message in their order. next() returns false at the end and at the first malformed field;
// failed() tells the two apart. Groups (wire types 3 and 4) count as malformed: no format here has them.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : reader_(message) {}
  bool next(ProtoField& field);
  bool failed() const { return failed_; }

 private:
  bool read(ProtoField& field);
  ByteReader reader_;
  bool failed_ = false;
};

}  // namespace dtrain::transfer
