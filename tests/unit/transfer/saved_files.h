// Files of PyTorch users, written here from their public descriptions: zips as torch.save and Python's zipfile lay them out, and
// safetensors.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/transfer/format.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::test {

inline std::string le(std::uint64_t number, std::size_t bytes) { return transfer::to_little_endian(number, bytes); }

inline std::string deflated(const std::string& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string out(deflateBound(&stream, bytes.size()) + 16, '\0');
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  (void)deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  (void)deflateEnd(&stream);
  return out;
}

struct ZipShape {
  bool descriptor = false;   // sizes follow the data, as torch.save does it
  bool zip64_local = false;  // as numpy.savez
  bool zip64_end = false;    // as torch.save
  bool packed = false;       // deflated
  bool crc = true;           // false: torch.serialization.set_crc32_options(False)
  std::size_t align = 0;     // of the data, by an extra field
  std::string comment = {};
};
inline ZipShape torch_shape() { return {.descriptor = true, .zip64_end = true, .align = 64}; }
inline ZipShape numpy_shape() { return {.zip64_local = true}; }

using Members = std::vector<std::pair<std::string, std::string>>;

struct ZipBytes {
  std::string bytes;
  std::vector<std::pair<std::size_t, std::size_t>> data;  // where the members' bytes are
};

inline ZipBytes write_zip(const Members& members, const ZipShape& shape) {
  ZipBytes zip;
  std::string directory;
  const std::string flags = le(shape.descriptor ? 0x0808 : 0, 2), method = le(shape.packed ? 8 : 0, 2), time = le(0x21, 4);
  for (const auto& [name, content] : members) {
    const std::string data = shape.packed ? deflated(content) : content;
    const std::uint64_t crc =
        shape.crc ? ::crc32(0, reinterpret_cast<const unsigned char*>(content.data()), static_cast<unsigned>(content.size())) : 0;
    const std::size_t at = zip.bytes.size();
    std::string sums = le(crc, 4) + le(data.size(), 4) + le(content.size(), 4), extra;
    if (shape.descriptor) sums = std::string(12, '\0');
    if (shape.zip64_local) {
      sums = le(crc, 4) + std::string(8, '\xff');
      extra = le(1, 2) + le(16, 2) + le(content.size(), 8) + le(data.size(), 8);
    }
    if (shape.align > 0) {
      const std::size_t begin = at + transfer::kZipLocalHeaderBytes + name.size() + extra.size() + 4;
      const std::size_t padding = (shape.align - begin % shape.align) % shape.align;
      extra += "FB" + le(padding, 2) + std::string(padding, 'Z');
    }
    zip.bytes += "PK\3\4" + le(20, 2) + flags + method + time + sums + le(name.size(), 2) + le(extra.size(), 2) + name + extra;
    zip.data.emplace_back(zip.bytes.size(), zip.bytes.size() + data.size());
    zip.bytes += data;
    if (shape.descriptor) zip.bytes += "PK\7\10" + le(crc, 4) + le(data.size(), 4) + le(content.size(), 4);
    directory += "PK\1\2" + le(20, 2) + le(20, 2) + flags + method + time + le(crc, 4) + le(data.size(), 4) + le(content.size(), 4) +
                 le(name.size(), 2) + std::string(12, '\0') + le(at, 4) + name;
  }
  const std::size_t begin = zip.bytes.size(), end = begin + directory.size();
  zip.bytes += directory;
  if (shape.zip64_end) {
    zip.bytes += "PK\6\6" + le(44, 8) + le(45, 2) + le(45, 2) + std::string(8, '\0') + le(members.size(), 8) + le(members.size(), 8) +
                 le(directory.size(), 8) + le(begin, 8);
    zip.bytes += "PK\6\7" + le(0, 4) + le(end, 8) + le(1, 4);
  }
  zip.bytes += "PK\5\6" + std::string(4, '\0') + le(members.size(), 2) + le(members.size(), 2) + le(directory.size(), 4) + le(begin, 4) +
               le(shape.comment.size(), 2) + shape.comment;
  return zip;
}

// A key and its value in a pickled dictionary, as protocol 2 has them.
inline std::string pickled(const std::string& key, std::uint64_t number) {
  return "X" + le(key.size(), 4) + key + "q\7" +
         (number < 256     ? "K" + le(number, 1)
          : number < 65536 ? "M" + le(number, 2)
                           : "J" + le(number, 4));
}
inline std::string deepspeed_counts(std::uint64_t data_parallel, std::uint64_t model_parallel, std::uint64_t zero) {
  return pickled("dp_world_size", data_parallel) + pickled("mp_world_size", model_parallel) + "X" + le(17, 4) + "zero_optimizationq\x9}(" +
         pickled("stage", zero);
}

inline std::string torch_file(const std::string& weights = "weights of a model", const ZipShape& shape = torch_shape(),
                              const std::string& in_pickle = "") {
  return write_zip({{"archive/data.pkl", "\x80\2}q\1" + in_pickle + "."}, {"archive/data/0", weights}, {"archive/version", "3\n"}}, shape)
      .bytes;
}

// Tensors of bytes, by name; they lie one after the other.
inline std::string safetensors_file(const Members& tensors) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}", data;
  for (const auto& [name, bytes] : tensors) {
    header += ",\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(bytes.size()) + "],\"data_offsets\":[" +
              std::to_string(data.size()) + "," + std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return le(header.size(), 8) + header + data;
}

// A directory in memory.
class FilesInMemory : public transfer::FileAccess {
 public:
  std::map<std::string, std::string> files;
  FilesInMemory() = default;
  FilesInMemory(const std::string& name, const std::string& bytes) : files{{name, bytes}} {}

  Result<std::vector<std::string>> names(const std::string& below) override {
    const std::string before = below.empty() ? "" : below + "/";
    std::set<std::string> all;
    for (const auto& file : files)
      if (file.first.starts_with(before)) all.insert(file.first.substr(before.size(), file.first.find('/', before.size()) - before.size()));
    if (all.empty() && !below.empty()) return fail(ErrorCode::damaged, below + ": it is no directory");
    return std::vector<std::string>(all.begin(), all.end());
  }
  Result<std::uint64_t> size(const std::string& name) override {
    if (!files.contains(name)) return fail(ErrorCode::not_found, name + ": it is not there");
    return files[name].size();
  }
  Result<std::string> read(const std::string& name, std::uint64_t offset, std::uint64_t size) override {
    if (!files.contains(name)) return fail(ErrorCode::not_found, name + ": it is not there");
    const std::string& all = files[name];
    if (offset > all.size() || size > all.size() - offset) return fail(ErrorCode::unavailable, "it became shorter");
    return all.substr(offset, size);
  }
};

// All that the agent does with a checkpoint of these files: Status of the deep check. With `step` 1, parts are fed byte by byte.
inline Status verify_in_memory(const transfer::Format& format, FilesInMemory& files, const std::string& base, std::size_t step = 1 << 20) {
  const std::string name = format.contents_name(base);
  const auto table = format.table != nullptr ? format.table(files, base) : files.read(name, 0, files.files[name].size());
  if (!table) return fail(table.error());
  const auto contents = format.parse(*table, base);
  if (!contents) return fail(contents.error());
  for (const auto& file : (*contents)->files) {
    const auto size = files.size(file.name);
    if (!size || *size < file.size || (file.exactly && *size != file.size))
      return fail(ErrorCode::damaged, file.name + " has another size");
  }
  for (std::size_t i = 0; i < (*contents)->part_count(); ++i) {
    const transfer::Part part = (*contents)->part(i);
    const auto bytes = files.read(part.file, part.offset, part.size);
    if (!bytes) return fail(bytes.error());
    const auto check = (*contents)->check(i);
    for (std::size_t at = 0; at < bytes->size(); at += step) check->feed(std::string_view(*bytes).substr(at, step));
    if (!check->finish()) return fail(ErrorCode::damaged, part.file + (*contents)->damage(i));
  }
  return {};
}

inline const transfer::Format& format_named(std::string_view name) {
  for (const transfer::Format* format : transfer::formats())
    if (format->name == name) return *format;
  return *transfer::formats().front();
}

}  // namespace dtrain::test
