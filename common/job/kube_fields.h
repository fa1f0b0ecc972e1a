// Reads the fields of one map of a manifest of another system. What no getter asked for is reported by rest(), so that no field is
// dropped in silence.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/file_errors.h"
#include "common/job/yaml_tree.h"

namespace dtrain::job {

// What the reader of a manifest finds.
struct KubeNotes {
  FileErrors errors;   // the file is refused
  FileErrors ignored;  // what is not honoured: a warning each
  void refuse(std::string code, const std::string& path, std::string message, std::string next) {
    errors.add(std::move(code), path, std::move(message), std::move(next));
  }
  void ignore(const std::string& path, std::string why) { ignored.add("ignored", path, std::move(why)); }
};

class KubeFields {
 public:
  // `node` null: a map without entries. Anything but a map is a mistake.
  KubeFields(const YamlNode* node, std::string path, KubeNotes& notes);

  const std::string& path() const { return path_; }
  std::string path(std::string_view key) const { return join_path(path_, key); }
  KubeNotes& notes() const { return notes_; }

  // Null where the key is absent, or its value null, as the server writes what is unset.
  const YamlNode* take(std::string_view key);
  void skip(std::initializer_list<std::string_view> keys);
  KubeFields map(std::string_view key) { return {take(key), path(key), notes_}; }
  // The items of a list; empty where it is absent.
  std::vector<const YamlNode*> list(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<bool> flag(std::string_view key);
  std::optional<std::int64_t> number(std::string_view key, std::int64_t least, std::int64_t most);
  // The keys with their values, as written; null values are left out.
  std::vector<const YamlEntry*> entries() const;
  // Reports what nobody asked for, unless it asks for nothing: null, false, "", an empty list or map.
  void rest();

 private:
  const YamlNode* node_;
  std::string path_;
  KubeNotes& notes_;
  std::set<std::string, std::less<>> taken_;
};

bool asks_for_nothing(const YamlNode& value);

}  // namespace dtrain::job
