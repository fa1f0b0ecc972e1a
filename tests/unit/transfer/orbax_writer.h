// Checkpoints of Orbax, written here from the public description of OCDBT: a database in a directory for each item, whose values lie in
// data files, as several processes write them.
#pragma once

#include <zstd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/transfer/crc32c.h"
#include "tests/unit/transfer/bundle_writer.h"
#include "tests/unit/transfer/saved_files.h"

namespace dtrain::test {

struct OcdbtShape {
  bool packed = true;         // nodes by zstd, as TensorStore does it if nothing else is asked for
  std::size_t per_leaf = 3;   // entries of one leaf; several leaves: a node above them
  std::size_t processes = 1;  // 1: data files in d/; more: in ocdbt.process_N/d/
  std::size_t versions = 1;
};

class OcdbtWriter {
 public:
  OcdbtWriter(FilesInMemory& to, std::string directory, const OcdbtShape& shape)
      : to_(to), directory_(std::move(directory)), shape_(shape) {
    for (std::size_t i = 0; i < shape.processes; ++i)
      bases_.push_back(shape.processes == 1 ? "" : "ocdbt.process_" + std::to_string(i) + "/");
  }

  // Keys in rising order; short values stand in the node.
  void write(const Members& values) {
    std::vector<Ref> leaves;
    for (std::size_t first = 0; first < values.size(); first += shape_.per_leaf)
      leaves.push_back(leaf({values.begin() + static_cast<std::ptrdiff_t>(first),
                             values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), first + shape_.per_leaf))},
                            first / shape_.per_leaf % shape_.processes));
    Ref root = leaves.size() == 1 ? leaves[0] : above(leaves);
    std::string entries = varint(shape_.versions);
    for (std::size_t i = 1; i <= shape_.versions; ++i) entries += varint(i);
    entries += std::string(shape_.versions, static_cast<char>(leaves.size() > 1));
    for (const std::uint64_t number :
         {std::uint64_t{0}, root.offset, root.length, std::uint64_t{values.size()}, root.length, std::uint64_t{9}})
      for (std::size_t i = 0; i < shape_.versions; ++i) entries += varint(number);
    entries += std::string(8 * shape_.versions, 't') + varint(0);
    const std::string config =
        std::string(16, 'u') + '\0' + varint(1024) + varint(100'000'000) + '\4' + (shape_.packed ? '\1' + le(0, 4) : std::string(1, '\0'));
    to_.files[directory_ + "manifest.ocdbt"] = sealed("\x0c\xdb\x3a\x2a", config + table({root.process}) + entries);
  }

 private:
  struct Ref {
    std::size_t process = 0;
    std::uint64_t offset = 0, length = 0;
    std::string key;
  };

  std::string sealed(const std::string& mark, const std::string& body) const {
    std::string packed = body;
    if (shape_.packed) {
      packed.resize(ZSTD_compressBound(body.size()));
      packed.resize(ZSTD_compress(packed.data(), packed.size(), body.data(), body.size(), 1));
    }
    std::string bytes = '\0' + std::string(1, shape_.packed ? '\1' : '\0') + packed;
    bytes = mark + le(bytes.size() + 16, 8) + bytes;
    return bytes + le(plain_crc32c(bytes), 4);
  }

  // Paths of data files, with what nodes in them begin their own paths with. Inside a process' files that is nothing more.
  std::string table(const std::vector<std::size_t>& processes, bool inside = false) const {
    std::string shared, own, base, paths;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const std::string begin = inside ? "" : bases_[processes[i]], path = begin + file_name(processes[i]);
      if (i > 0) shared += varint(0);
      own += varint(path.size());
      base += varint(begin.size());
      paths += path;
    }
    return varint(processes.size()) + shared + own + base + paths;
  }
  static std::string file_name(std::size_t process) { return "d/" + std::string(31, 'a') + static_cast<char>('0' + process); }
  std::string& data(std::size_t process) { return to_.files[directory_ + bases_[process] + file_name(process)]; }
  Ref put(std::size_t process, const std::string& bytes, std::string key) {
    std::string& file = data(process);
    file += bytes;
    return {process, file.size() - bytes.size(), bytes.size(), std::move(key)};
  }

  static std::string keys(const std::vector<std::string>& all) {
    std::string shared, own, bytes;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::size_t same = 0;
      while (i > 0 && same < all[i].size() && same < all[i - 1].size() && all[i][same] == all[i - 1][same]) ++same;
      if (i > 0) shared += varint(same);
      own += varint(all[i].size() - same);
      bytes += all[i].substr(same);
    }
    return shared + own + '|' + bytes;  // '|': where an inner node has one more column
  }

  Ref leaf(const Members& values, std::size_t process) {
    std::string lengths, kinds, files, offsets, inline_values;
    std::vector<std::string> names;
    for (const auto& [name, value] : values) {
      names.push_back(name);
      lengths += varint(value.size());
      const bool outside = value.size() > 16;
      kinds += outside ? '\1' : '\0';
      if (!outside) {
        inline_values += value;
        continue;
      }
      files += varint(0);
      offsets += varint(put(process, value, "").offset);
    }
    std::string key_bytes = keys(names);
    key_bytes.erase(key_bytes.find('|'), 1);
    return put(process,
               sealed("\x0c\xdb\x20\xde", '\0' + table({process}, true) + varint(values.size()) + key_bytes + lengths + kinds + files +
                                              offsets + inline_values),
               names.front());
  }

  Ref above(const std::vector<Ref>& leaves) {
    std::vector<std::string> names;
    std::vector<std::size_t> processes;
    std::string common, files, offsets, lengths, statistics;
    for (const Ref& leaf : leaves) {
      names.push_back(leaf.key);
      const auto at = std::find(processes.begin(), processes.end(), leaf.process) - processes.begin();
      if (at == static_cast<std::ptrdiff_t>(processes.size())) processes.push_back(leaf.process);
      common += varint(0);
      files += varint(static_cast<std::uint64_t>(at));
      offsets += varint(leaf.offset);
      lengths += varint(leaf.length);
      statistics += varint(1) + varint(2) + varint(300);
    }
    std::string key_bytes = keys(names);
    key_bytes.replace(key_bytes.find('|'), 1, common);
    // The root's file is in the database's own directory where there are several processes: its base is empty.
    const std::string body = '\1' + table(processes) + varint(leaves.size()) + key_bytes + files + offsets + lengths + statistics;
    const std::string bytes = sealed("\x0c\xdb\x20\xde", body);
    bases_.push_back("");
    return put(bases_.size() - 1, bytes, "");
  }

  FilesInMemory& to_;
  const std::string directory_;
  const OcdbtShape shape_;
  std::vector<std::string> bases_;
};

inline FilesInMemory orbax_checkpoint(const std::string& weights, const OcdbtShape& shape = {}, const Members& more = {}) {
  FilesInMemory dir;
  Members values{{"params.a/.zarray", "{\"a\":1}"}, {"params.a/0.0", weights + std::string(40, 'a')}};
  values.insert(values.end(), more.begin(), more.end());
  values.emplace_back("params.z/0", "more than 16 bytes of z");
  OcdbtWriter(dir, "default/", shape).write(values);
  dir.files["_CHECKPOINT_METADATA"] =
      "{\"item_handlers\": {\"default\": \"Standard\"}, \"init_timestamp_nsecs\": " + std::to_string(std::hash<std::string>{}(weights)) +
      ", \"commit_timestamp_nsecs\": 18}";
  dir.files["default/_METADATA"] = "{\"tree_metadata\": {}, \"use_ocdbt\": true, \"use_zarr3\": false}";
  dir.files["default/_sharding"] = "{}";
  return dir;
}

}  // namespace dtrain::test
