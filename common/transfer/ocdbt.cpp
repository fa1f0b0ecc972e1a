#include "common/transfer/ocdbt.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/transfer/byte_reader.h"
#include "common/transfer/crc32c.h"
#include "common/transfer/manifest.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kManifestMark{"\x0c\xdb\x3a\x2a"}, kNodeMark{"\x0c\xdb\x20\xde"};
constexpr std::size_t kMarkWidth = 4, kLengthWidth = 8, kChecksumWidth = 4;
constexpr std::uint64_t kUuidBytes = 16, kLevelBytes = 4, kTimeBytes = 8;
constexpr std::uint64_t kPlain = 0, kZstd = 1, kSingle = 0, kIndirect = 1, kNowhere = ~std::uint64_t{0};
constexpr std::size_t kPathBytes = 65'535;

tl::unexpected<Error> bad_database(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

Result<std::string> unpack(std::string_view packed) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::string out;
  std::string some(ZSTD_DStreamOutSize(), '\0');
  for (std::size_t left = 1; left != 0;) {
    ZSTD_outBuffer to{some.data(), some.size(), 0};
    const std::size_t before = in.pos;
    left = ZSTD_decompressStream(context.get(), &to, &in);
    if (ZSTD_isError(left) || (in.pos == before && to.pos == 0)) return bad_database("a node cannot be unpacked");
    if (to.pos > kOcdbtNodeBytes - out.size()) return bad_database("a node is too large");
    out.append(some, 0, to.pos);
  }
  if (in.pos != in.size) return bad_database("a node goes on after its end");
  return out;
}

// What stands between the header and the checksum of a manifest or node, unpacked.
Result<std::string> body_of(std::string_view bytes, std::string_view mark) {
  if (bytes.size() < kMarkWidth + kLengthWidth + kChecksumWidth || !bytes.starts_with(mark))
    return bad_database("it is cut, or something else");
  const std::string_view covered = bytes.substr(0, bytes.size() - kChecksumWidth);
  ByteReader header(covered.substr(kMarkWidth)), end(bytes.substr(covered.size()));
  if (header.fixed64() != bytes.size()) return bad_database("it has another length than it says");
  if (end.fixed32() != crc32c(covered)) return bad_database("its checksum is another");
  const auto version = header.varint(), packed = header.varint();
  if (version != 0) return fail(ErrorCode::refused, "it has a version that is not known here");
  const std::string_view body = *header.take(header.left());
  if (packed == kPlain) return std::string(body);
  if (packed == kZstd) return unpack(body);
  return bad_database("it is packed by an unknown method");
}

// Columns of numbers: one for each entry of a node.
using Column = std::vector<std::uint64_t>;

class Body {
 public:
  explicit Body(std::string_view bytes) : reader_(bytes) {}
  std::uint64_t number() { return taken(reader_.varint()); }
  std::uint64_t byte() {
    const auto byte = reader_.take(1);
    return byte ? static_cast<unsigned char>(byte->front()) : failed();
  }
  std::string_view bytes(std::uint64_t size) {
    const auto some = reader_.take(size);
    if (!some) failed();
    return some.value_or(std::string_view());
  }
  // Each takes a byte at least, so that `count` may be anything.
  Column numbers(std::uint64_t count) {
    Column column;
    for (std::uint64_t i = 0; i < count && good_; ++i) column.push_back(number());
    return column;
  }
  Column single_bytes(std::uint64_t count) {
    Column column;
    for (std::uint64_t i = 0; i < count && good_; ++i) column.push_back(byte());
    return column;
  }
  bool good() const { return good_; }
  bool ended() const { return good_ && reader_.empty(); }
  void refuse() { good_ = false; }

 private:
  std::uint64_t failed() {
    good_ = false;
    return 0;
  }
  std::uint64_t taken(std::optional<std::uint64_t> value) { return value ? *value : failed(); }
  ByteReader reader_;
  bool good_ = true;
};

// A data file of the database: `base` is the part of its path that the paths in its own nodes begin with.
struct DataFile {
  std::string path, base;
};

std::vector<DataFile> read_data_files(Body& body, const std::string& base) {
  const std::uint64_t count = body.number();
  Column shared = body.numbers(count == 0 ? 0 : count - 1);
  const Column own = body.numbers(count), bases = body.numbers(count);
  std::vector<DataFile> files;
  std::string path;
  for (std::uint64_t i = 0; i < count && body.good(); ++i) {
    const std::uint64_t kept = i == 0 ? 0 : shared[i - 1];
    if (kept > path.size() || own[i] > kPathBytes || kept + own[i] + base.size() > kPathBytes || bases[i] > kept + own[i]) {
      body.refuse();
      break;
    }
    path = path.substr(0, kept).append(body.bytes(own[i]));
    files.push_back({base + path, base + path.substr(0, bases[i])});
  }
  return files;
}

struct NodePlace {
  DataFile file;
  std::uint64_t offset = 0, length = 0, height = 0;
};

// Where something lies, from its columns; nullopt: the file is not in the table, or the end overflows.
std::optional<NodePlace> place_at(const std::vector<DataFile>& files, std::uint64_t file, std::uint64_t offset, std::uint64_t length) {
  if (file >= files.size() || length > kNowhere - offset) return std::nullopt;
  return NodePlace{files[file], offset, length};
}

struct TreeWalk {
  FileAccess& files;
  LeastBytes& least;
  std::vector<NodePlace> open;  // nodes that are to be read
  std::size_t nodes = 0;

  bool note(const NodePlace& place) {
    if (!is_inner_name(place.file.path)) return false;
    std::uint64_t& bytes = least[place.file.path];
    bytes = std::max(bytes, place.offset + place.length);
    return true;
  }

  // The newest version's root.
  Status manifest(const std::string& bytes, const std::string& directory) {
    auto unpacked = body_of(bytes, kManifestMark);
    if (!unpacked) return fail(unpacked.error());
    Body body(*unpacked);
    body.bytes(kUuidBytes);
    if (body.byte() != kSingle) return fail(ErrorCode::refused, "its versions are in manifests of their own, which is not supported");
    body.numbers(2);  // limits of values and nodes
    body.byte();
    if (body.number() != kPlain) body.bytes(kLevelBytes);
    const auto table = read_data_files(body, directory);
    const std::uint64_t versions = body.number();
    body.numbers(versions);  // their numbers, in rising order
    const Column heights = body.single_bytes(versions), data = body.numbers(versions), offsets = body.numbers(versions),
                 lengths = body.numbers(versions);
    body.numbers(3 * (body.good() ? versions : 0));  // statistics
    body.bytes(kTimeBytes * (body.good() ? versions : 0));
    if (!body.good() || versions == 0) return bad_database("it names no version");  // older versions may follow
    if (offsets.back() == kNowhere && lengths.back() == kNowhere) return {};        // an empty database
    auto root = place_at(table, data.back(), offsets.back(), lengths.back());
    if (!root) return bad_database("it names a root that cannot be");
    root->height = heights.back();
    open.push_back(std::move(*root));
    return {};
  }

  Status node(const NodePlace& place) {
    if (!note(place)) return bad_database("it names a file outside the checkpoint");
    if (++nodes > kOcdbtNodes) return fail(ErrorCode::refused, "it has more than " + std::to_string(kOcdbtNodes) + " nodes");
    const auto size = files.size(place.file.path);
    if (!size && size.error().code == ErrorCode::not_found) return bad_database(place.file.path + " is missing");
    if (!size) return fail(size.error());
    if (*size < place.offset + place.length) return bad_database(place.file.path + " is cut");
    const auto bytes = files.read(place.file.path, place.offset, place.length);
    if (!bytes) return fail(bytes.error());
    const auto unpacked = body_of(*bytes, kNodeMark);
    if (!unpacked) return fail(unpacked.error().code, "a node in " + place.file.path + ": " + unpacked.error().message);
    Body body(*unpacked);
    if (body.byte() != place.height) return bad_database("a node in " + place.file.path + " has another height than its parent says");
    const auto table = read_data_files(body, place.file.base);
    const std::uint64_t entries = body.number();
    body.numbers(entries == 0 ? 0 : entries - 1);  // what keys share with the ones before
    const Column keys = body.numbers(entries);
    if (place.height > 0) body.numbers(entries);
    for (const std::uint64_t key : keys) body.bytes(key);
    const bool right = place.height > 0 ? inner(body, table, entries, place.height) : leaf(body, table, entries);
    if (!right || entries == 0 || !body.ended()) return bad_database("a node in " + place.file.path + " is wrong in itself");
    return {};
  }

  bool inner(Body& body, const std::vector<DataFile>& table, std::uint64_t entries, std::uint64_t height) {
    const Column data = body.numbers(entries), offsets = body.numbers(entries), lengths = body.numbers(entries);
    body.numbers(3 * (body.good() ? entries : 0));  // statistics
    for (std::size_t i = 0; body.good() && i < entries; ++i) {
      auto child = place_at(table, data[i], offsets[i], lengths[i]);
      if (!child || open.size() > kOcdbtNodes) return false;
      child->height = height - 1;
      open.push_back(std::move(*child));
    }
    return body.good();
  }

  bool leaf(Body& body, const std::vector<DataFile>& table, std::uint64_t entries) {
    const Column lengths = body.numbers(entries), kinds = body.single_bytes(entries);
    const auto elsewhere = static_cast<std::uint64_t>(std::ranges::count(kinds, kIndirect));
    const Column data = body.numbers(elsewhere), offsets = body.numbers(elsewhere);
    for (std::size_t i = 0, k = 0; body.good() && i < entries; ++i) {
      if (kinds[i] > kIndirect) return false;
      if (kinds[i] != kIndirect) {
        body.bytes(lengths[i]);
        continue;
      }
      const auto value = place_at(table, data[k], offsets[k], lengths[i]);
      ++k;
      if (!value || !note(*value)) return false;
    }
    return body.good();
  }
};

}  // namespace

Status read_ocdbt(FileAccess& files, const std::string& directory, LeastBytes& least) {
  const std::string name = directory + std::string(kOcdbtManifest);
  const auto about = [&](const Error& e) { return fail(e.code, name + ": " + e.message); };
  const auto size = files.size(name);
  if (!size) return fail(size.error());
  if (*size > kOcdbtManifestBytes) return fail(ErrorCode::damaged, name + " is too large");
  const auto bytes = files.read(name, 0, *size);
  if (!bytes) return fail(bytes.error());
  TreeWalk walk{files, least, {}};
  if (auto begun = walk.manifest(*bytes, directory); !begun) return about(begun.error());
  while (!walk.open.empty()) {
    const NodePlace next = std::move(walk.open.back());
    walk.open.pop_back();
    if (auto read = walk.node(next); !read) return about(read.error());
  }
  return {};
}

}  // namespace dtrain::transfer
