// Files that a job's owner wrote into checkpoint.dir: the first byte chooses the reader.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "common/transfer/crc32c.h"
#include "common/transfer/format.h"
#include "common/transfer/leveldb_table.h"
#include "common/transfer/manifest.h"
#include "common/transfer/ocdbt.h"
#include "common/transfer/text_walk.h"
#include "common/transfer/tf_bundle.h"
#include "common/transfer/tf_checkpoint_state.h"

namespace dtrain::transfer {
namespace {

void check_manifest(std::string_view input) {
  const auto manifest = parse_manifest(input);
  if (!manifest) {
    CHECK(!manifest.error().message.empty());
    return;
  }
  CHECK(manifest->step >= 0);
  for (const auto& file : manifest->files) CHECK(is_inner_name(file.name) && file.sha256.size() == 64);
}

void check_index(std::string_view input) {
  const auto index = parse_bundle_index(input);
  if (!index) {
    CHECK(!index.error().message.empty());
    return;
  }
  CHECK(index->shards > 0 && index->shard_bytes.size() == index->shards);
  for (const auto& entry : index->entries)
    CHECK(entry.shard < index->shards && entry.offset + entry.size <= index->shard_bytes[entry.shard]);
}

void check_state(std::string_view input) {
  const auto state = parse_checkpoint_state(input);
  if (!state) return;
  const auto again = parse_checkpoint_state(render_checkpoint_state(*state));
  CHECK(again.has_value());
  CHECK(again->model_checkpoint_path == state->model_checkpoint_path);
  CHECK(again->all_model_checkpoint_paths == state->all_model_checkpoint_paths);
  auto dropped = *state;
  drop_from_state(dropped, "/dir", state->model_checkpoint_path, "/dir/next");
  CHECK(dropped.all_model_checkpoint_paths.size() <= state->all_model_checkpoint_paths.size());
}

std::string with_trailer(std::string block) {
  block.push_back('\0');
  const std::uint32_t crc = crc32c_mask(crc32c(block));
  for (int shift = 0; shift < 32; shift += 8) block.push_back(static_cast<char>(crc >> shift));
  return block;
}
std::string varint(std::size_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

// No fuzzer guesses a checksum: the input is one data block, and a table with right checksums is put around it.
void check_block(std::string_view input) {
  const std::string restarts("\0\0\0\0\1\0\0\0", 8);
  std::string table = with_trailer(std::string(input));
  const std::string data_handle = varint(0) + varint(input.size());
  const std::string meta_handle = varint(table.size()) + varint(restarts.size());
  table += with_trailer(restarts);
  const std::string index = std::string("\0\1", 2) + varint(data_handle.size()) + "k" + data_handle + restarts;
  std::string footer = meta_handle + varint(table.size()) + varint(index.size());
  table += with_trailer(index);
  footer.resize(kTableFooterBytes - 8);
  for (int shift = 0; shift < 64; shift += 8) footer.push_back(static_cast<char>(kTableMagic >> shift));
  check_index(table + footer);
}

// However the bytes are cut, the verdict is the same.
void check_entry(std::string_view input) {
  if (input.size() < 2) return;
  BundleEntry entry;
  entry.dtype = static_cast<unsigned char>(input[0]);
  entry.elements = static_cast<unsigned char>(input[1]);
  input.remove_prefix(2);
  entry.size = input.size();
  BundleEntryCheck whole(entry), bytewise(entry);
  whole.feed(input);
  for (const char& c : input) bytewise.feed(std::string_view(&c, 1));
  CHECK(whole.finish() == bytewise.finish());
}

// A directory whose only file is the input, under any name.
class OneFile : public FileAccess {
 public:
  explicit OneFile(std::string_view bytes) : bytes_(bytes) {}
  Result<std::vector<std::string>> names(const std::string& below) override {
    if (!below.empty()) return fail(ErrorCode::damaged, "it is a file");
    return std::vector<std::string>{".metadata",  "_CHECKPOINT_METADATA",       "manifest.ocdbt",    "model.safetensors",
                                    "mp_rank_00", "mp_rank_00_model_states.pt", "trainer_state.json"};
  }
  Result<std::uint64_t> size(const std::string&) override { return bytes_.size(); }
  Result<std::string> read(const std::string&, std::uint64_t offset, std::uint64_t size) override {
    if (offset > bytes_.size() || size > bytes_.size() - offset) return fail(ErrorCode::unavailable, "it became shorter");
    return std::string(bytes_.substr(offset, size));
  }

 private:
  const std::string_view bytes_;
};

class Database : public FileAccess {
 public:
  std::string manifest, data;
  Result<std::vector<std::string>> names(const std::string&) override { return std::vector<std::string>{"d", "manifest.ocdbt"}; }
  Result<std::uint64_t> size(const std::string& name) override { return of(name).size(); }
  Result<std::string> read(const std::string& name, std::uint64_t offset, std::uint64_t size) override {
    if (offset > of(name).size() || size > of(name).size() - offset) return fail(ErrorCode::unavailable, "it became shorter");
    return of(name).substr(offset, size);
  }

 private:
  const std::string& of(const std::string& name) const { return name == "d" ? data : manifest; }
};

void check_contents(const Format& format, std::string_view table, std::string_view file) {
  const auto contents = format.parse(table, "p");
  if (!contents) {
    CHECK(!contents.error().message.empty());
    return;
  }
  for (std::size_t i = 0; i < (*contents)->part_count(); ++i) {
    const Part part = (*contents)->part(i);
    CHECK(part.cost > 0 && part.offset + part.size >= part.offset);
    const auto check = (*contents)->check(i);
    const std::string_view bytes = file.substr(std::min<std::uint64_t>(part.offset, file.size())).substr(0, part.size);
    check->feed(bytes.substr(0, bytes.size() / 2));
    check->feed(bytes.substr(bytes.size() / 2));
    (void)check->finish();
  }
}

// The first byte is the length of a manifest's body, the rest that of a node; right headers and checksums are put around both. The manifest
// may name the node by the path "d".
void check_database(std::string_view input) {
  if (input.empty()) return;
  const auto sealed = [](const std::string& mark, std::string_view body) {
    std::string bytes = mark;
    const std::uint64_t size = mark.size() + 8 + 2 + body.size() + 4;
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(size >> shift));
    bytes.append(2, '\0').append(body);
    const std::uint32_t crc = crc32c(bytes);
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(crc >> shift));
    return bytes;
  };
  const std::size_t first = static_cast<unsigned char>(input[0]);
  input.remove_prefix(1);
  Database files;
  files.manifest = sealed("\x0c\xdb\x3a\x2a", input.substr(0, first));
  files.data = sealed("\x0c\xdb\x20\xde", input.substr(std::min(first, input.size())));
  LeastBytes least;
  const Status read = read_ocdbt(files, "", least);
  CHECK(read || !read.error().message.empty());
  for (const auto& file : least) CHECK(is_inner_name(file.first));
}

// However the bytes are cut, the verdict is the same.
template <class Walk>
void check_walk(std::string_view input) {
  Walk whole, bytewise;
  (void)whole.feed(input);
  for (const char& c : input) (void)bytewise.feed(std::string_view(&c, 1));
  CHECK(whole.ended() == bytewise.ended());
}

// Formats that read stretches of files, on a file: what they found in it lies in it. The first byte chooses one.
void check_file(std::string_view input) {
  if (input.empty()) return;
  const Format& format = *formats()[static_cast<unsigned char>(input[0]) % formats().size()];
  input.remove_prefix(1);
  if (format.table == nullptr) return;
  OneFile files(input);
  const auto table = format.table(files, "p");
  if (table) check_contents(format, *table, input);
}

// The same on a table that no file has.
void check_table(std::string_view input) {
  if (input.empty()) return;
  const Format& format = *formats()[static_cast<unsigned char>(input[0]) % formats().size()];
  check_contents(format, input.substr(1), input.substr(1));
}

// What another host says that there must be of a checkpoint, and the names of the files that it has, one a line.
void check_list(std::string_view input) {
  if (input.size() < 2) return;
  const Format& format = *formats()[static_cast<unsigned char>(input[0]) % formats().size()];
  const std::size_t size = std::min<std::size_t>(static_cast<unsigned char>(input[1]), input.size() - 2);
  if (format.lacks == nullptr) return;
  std::vector<std::string> names;
  for (std::string_view rest = input.substr(2 + size); !rest.empty(); rest.remove_prefix(std::min(rest.size(), names.back().size() + 1)))
    names.emplace_back(rest.substr(0, rest.find('\n')));
  (void)format.lacks(input.substr(2, size), names);
}

}  // namespace
}  // namespace dtrain::transfer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain::transfer;
  constexpr void (*kReaders[])(std::string_view) = {
      check_manifest, check_index, check_state,    check_block,          check_entry,
      check_file,     check_table, check_database, check_walk<JsonWalk>, check_walk<UbjsonWalk>,
      check_list};
  if (size == 0 || data[0] >= std::size(kReaders)) return 0;
  kReaders[data[0]](std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
