#include "common/transfer/leveldb_table.h"

#include <string>

#include "common/transfer/byte_reader.h"
#include "common/transfer/crc32c.h"

namespace dtrain::transfer {
namespace {

constexpr std::size_t kMagicBytes = 8;
constexpr unsigned char kUncompressed = 0;
constexpr unsigned char kSnappy = 1;

struct BlockHandle {
  std::uint64_t offset = 0, size = 0;
  std::uint64_t end() const { return offset + size + kTableTrailerBytes; }
};

tl::unexpected<Error> damaged(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

std::optional<BlockHandle> read_handle(ByteReader& reader) {
  const auto offset = reader.varint();
  const auto size = offset ? reader.varint() : std::nullopt;
  if (!size) return std::nullopt;
  return BlockHandle{*offset, *size};
}

// Every check of sizes is written so that no sum can wrap around.
bool fits(const BlockHandle& handle, std::size_t limit) {
  return handle.offset <= limit && limit - handle.offset >= kTableTrailerBytes && handle.size <= limit - handle.offset - kTableTrailerBytes;
}

Result<std::string_view> read_block(std::string_view bytes, const BlockHandle& handle, const char* what) {
  const auto size = static_cast<std::size_t>(handle.size);
  const auto block = bytes.substr(static_cast<std::size_t>(handle.offset), size + kTableTrailerBytes);
  const auto type = static_cast<unsigned char>(block[size]);
  ByteReader trailer(block.substr(size + 1));
  if (trailer.fixed32() != crc32c_mask(crc32c(block.substr(0, size + 1))))
    return damaged(std::string(what) + " at byte " + std::to_string(handle.offset) + " has a wrong checksum");
  if (type == kSnappy)
    return fail(ErrorCode::refused, std::string(what) + " is compressed with snappy, which is not supported",
                "write the checkpoint uncompressed, as TensorFlow does by default");
  if (type != kUncompressed) return damaged(std::string(what) + " is of unknown type " + std::to_string(type));
  return block.substr(0, size);
}

Status read_entries(std::string_view block, const char* what, const TableVisitor& visit, std::string& last_key, bool& first) {
  const auto broken = [&](const char* cause) { return damaged(std::string(what) + " " + cause); };
  constexpr std::size_t kWord = 4;
  if (block.size() < kWord) return broken("is too short");
  const auto restarts = ByteReader(block.substr(block.size() - kWord)).fixed32().value_or(0);
  if (restarts > (block.size() - kWord) / kWord) return broken("has a wrong restart count");
  ByteReader reader(block.substr(0, block.size() - kWord - restarts * kWord));
  std::string key;
  while (!reader.empty()) {
    const auto shared = reader.varint(), added = reader.varint(), value_size = reader.varint();
    const auto suffix = added ? reader.take(*added) : std::nullopt;
    const auto value = value_size ? reader.take(*value_size) : std::nullopt;
    if (!shared || !suffix || !value || *shared > key.size()) return broken("has a malformed entry");
    if (*shared + suffix->size() > kTableKeyBytes) return broken("has a key that is too long");
    key.resize(static_cast<std::size_t>(*shared));
    key += *suffix;
    if (!first && key <= last_key) return broken("has keys out of order");
    first = false;
    last_key = key;
    if (auto visited = visit(key, *value); !visited) return visited;
  }
  return {};
}

}  // namespace

bool has_table_magic(std::string_view bytes) {
  return bytes.size() >= kTableFooterBytes && ByteReader(bytes.substr(bytes.size() - kMagicBytes)).fixed64() == kTableMagic;
}

Status read_table(std::string_view bytes, const TableVisitor& visit) {
  if (!has_table_magic(bytes)) return damaged("it does not end like a table (cut short?)");
  const std::size_t body = bytes.size() - kTableFooterBytes;
  ByteReader footer(bytes.substr(body, kTableFooterBytes - kMagicBytes));
  const auto metaindex = read_handle(footer);
  const auto index = metaindex ? read_handle(footer) : std::nullopt;
  if (!index || !fits(*metaindex, body) || !fits(*index, body)) return damaged("its footer is malformed");
  while (const auto padding = footer.take(1))
    if (padding->front() != '\0') return damaged("its footer is malformed");
  // The metaindex is not used, but damage there is damage.
  if (auto block = read_block(bytes, *metaindex, "the metaindex block"); !block) return fail(block.error());
  const auto index_block = read_block(bytes, *index, "the index block");
  if (!index_block) return fail(index_block.error());

  std::string last_separator, last_key;
  bool first_separator = true, first_key = true;
  std::uint64_t previous_end = 0;
  return read_entries(
      *index_block, "the index block",
      [&](std::string_view, std::string_view value) -> Status {
        ByteReader reader(value);
        const auto handle = read_handle(reader);
        if (!handle || !reader.empty() || !fits(*handle, body)) return damaged("the index block has a wrong handle");
        if (handle->offset < previous_end) return damaged("its blocks overlap");
        previous_end = handle->end();
        const auto block = read_block(bytes, *handle, "the data block");
        if (!block) return fail(block.error());
        return read_entries(*block, "a data block", visit, last_key, first_key);
      },
      last_separator, first_separator);
}

}  // namespace dtrain::transfer
