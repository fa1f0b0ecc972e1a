// Writes TensorFlow bundles for tests, from the public description of the format and independent of the reader: its
// own CRC, its own varints.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::test {

inline std::uint32_t plain_crc32c(const std::string& bytes, std::uint32_t crc = 0) {
  crc = ~crc;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}
inline std::uint32_t masked(std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}
inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}
inline std::string proto_number(int field, std::uint64_t value) {
  return value == 0 ? "" : varint(static_cast<std::uint64_t>(field) << 3) + varint(value);
}
inline std::string proto_bytes(int field, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(bytes.size()) + bytes;
}

class TableWriter {
 public:
  int entries_per_block = 4, restart_interval = 2;
  char block_type = 0;

  std::string write(const std::map<std::string, std::string>& entries) {
    out_.clear();
    std::map<std::string, std::string> index, block;
    const auto flush = [&] {
      if (block.empty()) return;
      index[block.rbegin()->first] = append(block);
      block.clear();
    };
    for (const auto& entry : entries) {
      block.insert(entry);
      if (static_cast<int>(block.size()) == entries_per_block) flush();
    }
    flush();
    const std::string metaindex = append({});
    std::string footer = metaindex + append(index);
    footer.resize(40);
    return out_ + footer + little_endian(0xdb4775248b80fb57ull, 8);
  }

 private:
  std::string append(const std::map<std::string, std::string>& entries) {
    std::string block, previous;
    std::vector<std::uint64_t> restarts{0};
    int since_restart = 0;
    for (const auto& [key, value] : entries) {
      std::size_t shared = 0;
      if (since_restart == restart_interval) {
        restarts.push_back(block.size());
        since_restart = 0;
      } else {
        while (shared < key.size() && shared < previous.size() && key[shared] == previous[shared]) ++shared;
      }
      block += varint(shared) + varint(key.size() - shared) + varint(value.size()) + key.substr(shared) + value;
      previous = key;
      ++since_restart;
    }
    for (const auto restart : restarts) block += little_endian(restart, 4);
    block += little_endian(restarts.size(), 4);
    std::string handle = varint(out_.size()) + varint(block.size());
    block.push_back(block_type);
    out_ += block + little_endian(masked(plain_crc32c(block)), 4);
    return handle;
  }
  std::string out_;
};

struct Tensor {
  std::string name;
  std::uint64_t dtype = 1;  // float
  std::vector<std::uint64_t> shape{};
  std::string bytes{};                  // plain types
  std::vector<std::string> elements{};  // text (7) and variants (21)
  std::uint32_t shard = 0;
  bool partitioned = false;  // only says that there are slices, which are tensors of their own
};

struct Bundle {
  std::string index;
  std::vector<std::string> shards;
};

inline Bundle write_bundle(const std::vector<Tensor>& tensors, std::uint32_t shards, TableWriter table = {}, std::uint64_t endianness = 0) {
  Bundle bundle;
  bundle.shards.resize(shards);
  std::map<std::string, std::string> entries;
  entries[""] = proto_number(1, shards) + proto_number(2, endianness) + proto_bytes(3, proto_number(1, 1));
  for (const auto& tensor : tensors) {
    std::string shape;
    for (const auto dim : tensor.shape) shape += proto_bytes(2, proto_number(1, dim));
    std::string entry = proto_number(1, tensor.dtype) + proto_bytes(2, shape);
    if (tensor.partitioned) {
      entries[tensor.name] = entry + proto_bytes(7, proto_bytes(1, ""));
      continue;
    }
    std::string stored, covered;
    if (tensor.dtype == 7) {
      for (const auto& element : tensor.elements) {
        stored += varint(element.size());
        covered += little_endian(element.size(), 4);
      }
      const std::string checksum = little_endian(masked(plain_crc32c(covered)), 4);
      stored += checksum;
      covered += checksum;
      for (const auto& element : tensor.elements) stored += element, covered += element;
    } else if (tensor.dtype == 21) {
      for (const auto& element : tensor.elements) {
        stored += varint(element.size()) + element;
        covered += little_endian(element.size(), 8) + element;
        const std::string checksum = little_endian(masked(plain_crc32c(covered)), 4);
        stored += checksum;
        covered += checksum;
      }
    } else {
      stored = covered = tensor.bytes;
    }
    std::string& data = bundle.shards[tensor.shard];
    entry += proto_number(3, tensor.shard) + proto_number(4, data.size()) + proto_number(5, stored.size());
    entry += varint(6 << 3 | 5) + little_endian(masked(plain_crc32c(covered)), 4);
    data += stored;
    entries[tensor.name] = entry;
  }
  bundle.index = table.write(entries);
  return bundle;
}

}  // namespace dtrain::test
