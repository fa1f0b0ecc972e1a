#include "common/transfer/tf_bundle.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <tuple>

#include "common/transfer/byte_reader.h"
#include "common/transfer/crc32c.h"
#include "common/transfer/leveldb_table.h"

namespace dtrain::transfer {
namespace {

using Wire = ProtoField::Wire;

tl::unexpected<Error> damaged_bundle(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

// BundleHeaderProto: num_shards = 1, endianness = 2 (0 little, 1 big), version = 3 {producer = 1, min_consumer = 2}
Status parse_header(std::string_view message, BundleIndex& index) {
  std::uint64_t shards = 0, endianness = 0, min_consumer = 0;
  ProtoReader reader(message);
  for (ProtoField field; reader.next(field);) {
    if (field.is(1, Wire::varint)) shards = field.value;
    if (field.is(2, Wire::varint)) endianness = field.value;
    if (!field.is(3, Wire::bytes)) continue;
    ProtoReader version(field.bytes);
    for (ProtoField part; version.next(part);)
      if (part.is(2, Wire::varint)) min_consumer = part.value;
    if (version.failed()) return damaged_bundle("its header is malformed");
  }
  if (reader.failed() || shards == 0 || shards > kBundleShards) return damaged_bundle("its header is malformed");
  if (endianness != 0) return fail(ErrorCode::refused, "it was written on a big-endian machine, which is not supported");
  if (min_consumer > kBundleMinConsumer)
    return fail(ErrorCode::refused, "it needs a reader of bundle version " + std::to_string(min_consumer));
  index.shards = static_cast<std::uint32_t>(shards);
  index.shard_bytes.assign(index.shards, 0);
  return {};
}

// TensorShapeProto: dim = 2 {size = 1}
bool parse_shape(std::string_view message, std::uint64_t& elements) {
  elements = 1;
  ProtoReader reader(message);
  for (ProtoField field; reader.next(field);) {
    if (!field.is(2, Wire::bytes)) continue;
    std::uint64_t size = 0;
    ProtoReader dim(field.bytes);
    for (ProtoField part; dim.next(part);)
      if (part.is(1, Wire::varint)) size = part.value;
    if (dim.failed() || __builtin_mul_overflow(elements, size, &elements)) return false;
  }
  return !reader.failed();
}

// BundleEntryProto: dtype = 1, shape = 2, shard_id = 3, offset = 4, size = 5, crc32c = 6 (fixed32), slices = 7
// A partitioned tensor has an entry with slices and no bytes; each slice has an entry of its own.
Status parse_entry(std::string_view name, std::string_view message, BundleIndex& index) {
  BundleEntry entry;
  std::uint64_t shard = 0;
  bool well_formed = true, sliced = false;
  ProtoReader reader(message);
  for (ProtoField field; reader.next(field);) {
    if (field.is(1, Wire::varint)) entry.dtype = field.value;
    if (field.is(2, Wire::bytes)) well_formed = well_formed && parse_shape(field.bytes, entry.elements);
    if (field.is(3, Wire::varint)) shard = field.value;
    if (field.is(4, Wire::varint)) entry.offset = field.value;
    if (field.is(5, Wire::varint)) entry.size = field.value;
    if (field.is(6, Wire::fixed32)) entry.masked_crc = static_cast<std::uint32_t>(field.value);
    if (field.is(7, Wire::bytes)) sliced = true;
  }
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (reader.failed() || !well_formed || shard >= index.shards || entry.offset > kLargest || entry.size > kLargest - entry.offset)
    return damaged_bundle("an entry is malformed");
  if (sliced) return {};
  entry.name = name;
  entry.shard = static_cast<std::uint32_t>(shard);
  auto& least = index.shard_bytes[entry.shard];
  least = std::max(least, entry.offset + entry.size);
  index.entries.push_back(std::move(entry));
  return {};
}

bool all_digits(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos; }

}  // namespace

Result<BundleIndex> parse_bundle_index(std::string_view bytes) {
  if (bytes.size() > kBundleIndexBytes) return damaged_bundle("it is longer than " + std::to_string(kBundleIndexBytes) + " bytes");
  BundleIndex index;
  std::size_t name_bytes = 0;
  const auto read = read_table(bytes, [&](std::string_view key, std::string_view value) -> Status {
    if (key.empty()) return parse_header(value, index);  // keys ascend: the header comes first or never
    if (index.shards == 0) return damaged_bundle("its header is missing");
    name_bytes += key.size();
    if (index.entries.size() == kBundleEntries || name_bytes > kBundleNameBytes)
      return damaged_bundle("it has more than " + std::to_string(kBundleEntries) + " entries or too long names");
    return parse_entry(key, value, index);
  });
  if (!read) return fail(read.error());
  if (index.shards == 0) return damaged_bundle("its header is missing");
  std::sort(index.entries.begin(), index.entries.end(), [](const BundleEntry& a, const BundleEntry& b) {
    return std::tie(a.shard, a.offset, a.size) < std::tie(b.shard, b.offset, b.size);
  });
  // Overlapping entries would let a small file cost any amount of reading.
  for (std::size_t i = 1; i < index.entries.size(); ++i) {
    const auto &before = index.entries[i - 1], &entry = index.entries[i];
    if (before.shard == entry.shard && before.offset + before.size > entry.offset)
      return damaged_bundle("the entries " + before.name + " and " + entry.name + " overlap");
  }
  return index;
}

// What the checksum covers. Plain types: their bytes. Text: each length (as 32 bits, or 64 where it needs them), then
// the stored masked checksum of these, then all payloads; stored as all lengths (varint), checksum, all payloads.
// Variants: for each element its length (64 bits), payload, and the stored masked checksum so far.
BundleEntryCheck::BundleEntryCheck(const BundleEntry& entry)
    : text_(entry.dtype == kDtString), variant_(entry.dtype == kDtVariant), masked_crc_(entry.masked_crc), elements_left_(entry.elements) {
  if (entry.size == 0 || (variant_ && elements_left_ == 0)) part_ = Part::done;
  else if (text_ && elements_left_ == 0) part_ = Part::checksum;
}

void BundleEntryCheck::feed(std::string_view bytes) {
  if (!text_ && !variant_) {
    crc_ = crc32c_extend(crc_, bytes);
    return;
  }
  while (!bytes.empty() && good_) {
    if (part_ == Part::payload || (part_ == Part::done && text_)) {
      // Text: everything after the checksum of the lengths; end_of_checksum has set payload_left_ to their sum.
      const auto part = bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), payload_left_)));
      if (part.empty()) {
        good_ = false;
        return;
      }
      crc_ = crc32c_extend(crc_, part);
      payload_left_ -= part.size();
      bytes.remove_prefix(part.size());
      if (variant_ && payload_left_ == 0) part_ = Part::checksum;
      continue;
    }
    step(bytes.front());
    bytes.remove_prefix(1);
  }
}

void BundleEntryCheck::step(char byte) {
  constexpr std::size_t kMaxVarint = 10, kChecksum = 4;
  if (part_ == Part::length) {
    varint_.push_back(byte);
    if (static_cast<unsigned char>(byte) < 0x80) end_of_length();
    else if (varint_.size() == kMaxVarint) good_ = false;
  } else if (part_ == Part::checksum) {
    checksum_.push_back(byte);
    if (checksum_.size() == kChecksum) end_of_checksum();
  } else {
    good_ = false;  // more bytes than the elements account for
  }
}

void BundleEntryCheck::end_of_length() {
  const auto length = ByteReader(varint_).varint();
  varint_.clear();
  if (!length) {
    good_ = false;
    return;
  }
  const bool narrow = text_ && *length <= std::numeric_limits<std::uint32_t>::max();
  std::string covered;
  for (int i = 0; i < (narrow ? 4 : 8); ++i) covered.push_back(static_cast<char>(*length >> (8 * i)));
  crc_ = crc32c_extend(crc_, covered);
  --elements_left_;
  if (text_) {
    if (__builtin_add_overflow(payload_left_, *length, &payload_left_)) good_ = false;
    if (elements_left_ == 0) part_ = Part::checksum;
  } else {
    payload_left_ = *length;
    part_ = payload_left_ > 0 ? Part::payload : Part::checksum;
  }
}

void BundleEntryCheck::end_of_checksum() {
  if (ByteReader(checksum_).fixed32() != crc32c_mask(crc_)) good_ = false;
  crc_ = crc32c_extend(crc_, checksum_);
  checksum_.clear();
  if (text_) part_ = payload_left_ > 0 ? Part::payload : Part::done;
  else part_ = elements_left_ > 0 ? Part::length : Part::done;
}

bool BundleEntryCheck::finish() {
  const bool whole = !(text_ || variant_) || (payload_left_ == 0 && (part_ == Part::done || (text_ && part_ == Part::payload)));
  return good_ && whole && crc32c_mask(crc_) == masked_crc_;
}

std::string bundle_index_name(std::string_view prefix) { return std::string(prefix) + ".index"; }

std::string bundle_data_name(std::string_view prefix, std::uint32_t shard, std::uint32_t shards) {
  char suffix[48];
  std::snprintf(suffix, sizeof suffix, ".data-%05u-of-%05u", shard, shards);
  return std::string(prefix) + suffix;
}

std::string_view bundle_prefix_of_index(std::string_view file_name) {
  constexpr std::string_view kSuffix = ".index";
  if (!file_name.ends_with(kSuffix)) return {};
  return file_name.substr(0, file_name.size() - kSuffix.size());
}

bool is_bundle_data_file(std::string_view file_name, std::string_view prefix) {
  constexpr std::string_view kData = ".data-", kOf = "-of-";
  constexpr std::size_t kDigits = 5;
  if (!file_name.starts_with(prefix)) return false;
  const auto rest = file_name.substr(prefix.size());
  return rest.size() == kData.size() + kDigits + kOf.size() + kDigits && rest.starts_with(kData) &&
         all_digits(rest.substr(kData.size(), kDigits)) && rest.substr(kData.size() + kDigits, kOf.size()) == kOf &&
         all_digits(rest.substr(rest.size() - kDigits));
}

bool is_bundle_file(std::string_view file_name, std::string_view prefix) {
  if (is_bundle_data_file(file_name, prefix)) return true;
  if (!file_name.starts_with(prefix)) return false;
  const auto rest = file_name.substr(prefix.size());
  return rest == ".index" || rest == ".meta";
}

std::int64_t bundle_step(std::string_view prefix) {
  constexpr std::string_view kOldSuffix = ".ckpt";
  const auto base = prefix.substr(prefix.rfind('/') == std::string_view::npos ? 0 : prefix.rfind('/') + 1);
  const auto number_behind = [](std::string_view name) {
    const auto dash = name.rfind('-');
    std::int64_t step = 0;
    if (dash == std::string_view::npos || !all_digits(name.substr(dash + 1))) return step;
    const auto digits = name.substr(dash + 1);
    if (std::from_chars(digits.data(), digits.data() + digits.size(), step).ec != std::errc{}) step = 0;
    return step;
  };
  return number_behind(base.ends_with(kOldSuffix) ? base.substr(0, base.size() - kOldSuffix.size()) : base);
}

}  // namespace dtrain::transfer
