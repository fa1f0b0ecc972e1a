// Reads the fields of one map of a job file. Each getter leaves its target alone when the key is absent, and reports
// what is wrong with it otherwise. The getters remember their keys, so that done() can report every other key with
// its nearest match.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/job/file_errors.h"
#include "common/job/names.h"
#include "common/job/text.h"
#include "common/job/yaml_tree.h"

namespace dtrain::job {

// A whole number from `least` to `most`; anything else is reported.
bool read_whole_number(const YamlNode& value, const std::string& path, std::int64_t least, std::int64_t most, FileErrors& report,
                       std::int64_t& out);

class MapReader {
 public:
  MapReader(const YamlNode& node, std::string path, FileErrors& report);

  const std::string& path() const { return path_; }
  std::string path(std::string_view key) const { return join_path(path_, key); }
  bool has(std::string_view key) const { return node_.find(key) != nullptr; }

  const YamlNode* node(const char* key);    // of any kind, a list or a map if it may be one; null when absent
  const YamlNode* scalar(const char* key);  // null when absent or reported
  bool text(const char* key, std::string& out);
  bool boolean(const char* key, bool& out);
  bool texts(const char* key,
             std::vector<std::string>& out);  // a list of texts; a wrong item is reported and empty
  bool text_map(const char* key, std::map<std::string, std::string>& out);
  bool duration(const char* key, Duration& out);
  bool seconds(const char* key, Duration& out, std::uint64_t least);  // a plain number of seconds
  bool signal(const char* key, std::int32_t& out);

  // A whole number from least to most.
  template <class T>
  bool number(const char* key, T& out, std::int64_t least, std::int64_t most) {
    static_assert(std::is_integral_v<T>);
    const YamlNode* found = scalar(key);
    std::int64_t value = 0;
    if (!found || !read_whole_number(*found, path(key), least, most, report_, value)) return false;
    out = static_cast<T>(value);
    return true;
  }

  template <class E>
  bool word(const char* key, E& out) {
    const YamlNode* found = scalar(key);
    return found && word_of(*found, path(key), out);
  }
  template <class E>
  bool word_of(const YamlNode& value, const std::string& at, E& out) {
    if (const auto known = from_word<E>(value.text)) {
      out = *known;
      return true;
    }
    wrong_word(at, value.text, all_words<E>());
    return false;
  }

  // A value with a reader of its own, such as parse_memory. Its error's message is the cause.
  template <class T>
  bool parsed(const char* key, T& out, Result<T> (*parse)(std::string_view)) {
    const YamlNode* found = scalar(key);
    if (!found) return false;
    const auto value = parse(found->text);
    if (!value) {
      report_.add("wrong-type", path(key), value.error().message);
      return false;
    }
    out = *value;
    return true;
  }

  void wrong_word(const std::string& at, const std::string& text, const std::vector<std::string>& words);
  bool is_text(const YamlNode& value, const std::string& at, std::string_view wanted = "text");
  void done();  // reports the keys that no getter asked for

 private:
  const YamlNode& node_;
  std::string path_;
  FileErrors& report_;
  std::vector<std::string> known_;
};

std::string_view kind_name(const YamlNode& node);  // "a list"

}  // namespace dtrain::job
