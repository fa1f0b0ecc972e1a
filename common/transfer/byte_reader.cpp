#include "common/transfer/byte_reader.h"

namespace dtrain::transfer {
namespace {

template <class T>
std::optional<T> little_endian(std::optional<std::string_view> bytes) {
  if (!bytes) return std::nullopt;
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | static_cast<unsigned char>((*bytes)[i]));
  return value;
}

}  // namespace

std::optional<std::uint64_t> ByteReader::varint() {
  constexpr unsigned kLastShift = 63;  // the tenth byte carries one bit
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift <= kLastShift; shift += 7) {
    if (bytes_.empty()) return std::nullopt;
    const auto byte = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    if (shift == kLastShift && byte > 1) return std::nullopt;
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) {
      if (byte == 0 && shift > 0) return std::nullopt;
      return value;
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> ByteReader::fixed32() { return little_endian<std::uint32_t>(take(4)); }
std::optional<std::uint64_t> ByteReader::fixed64() { return little_endian<std::uint64_t>(take(8)); }

std::optional<std::string_view> ByteReader::take(std::uint64_t size) {
  if (size > bytes_.size()) return std::nullopt;
  const auto taken = bytes_.substr(0, static_cast<std::size_t>(size));
  bytes_.remove_prefix(taken.size());
  return taken;
}

std::optional<std::string_view> ByteReader::length_prefixed() {
  const auto size = varint();
  return size ? take(*size) : std::nullopt;
}

bool ProtoReader::next(ProtoField& field) {
  if (failed_ || reader_.empty()) return false;
  failed_ = !read(field);
  return !failed_;
}

bool ProtoReader::read(ProtoField& field) {
  constexpr std::uint64_t kLargestTag = (std::uint64_t{1} << 32) - 1;
  const auto tag = reader_.varint();
  if (!tag || *tag > kLargestTag || *tag >> 3 == 0) return false;
  field = ProtoField{};
  field.number = static_cast<std::uint32_t>(*tag >> 3);
  const auto number = [&](auto value) {
    if (value) field.value = *value;
    return value.has_value();
  };
  switch (*tag & 7) {
    case 0: field.wire = ProtoField::Wire::varint; return number(reader_.varint());
    case 1: field.wire = ProtoField::Wire::fixed64; return number(reader_.fixed64());
    case 5: field.wire = ProtoField::Wire::fixed32; return number(reader_.fixed32());
    case 2: {
      field.wire = ProtoField::Wire::bytes;
      const auto bytes = reader_.length_prefixed();
      if (bytes) field.bytes = *bytes;
      return bytes.has_value();
    }
    default: return false;
  }
}

}  // namespace dtrain::transfer
