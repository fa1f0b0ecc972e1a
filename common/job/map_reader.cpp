#include "common/job/map_reader.h"

#include <algorithm>

#include "common/job/manifest.h"
#include "common/job/quantity.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;
const YamlNode kNoFields;
constexpr std::size_t kBeginningBytes = 4;  // so much of a key may stand for it

// The only key that begins with the word: "nproc" of nprocPerNode. "": none, or several.
std::string begun_with(std::string_view word, const std::vector<std::string>& known) {
  if (word.size() < kBeginningBytes) return "";
  const auto found = std::ranges::find_if(known, [&](const std::string& key) { return key.starts_with(word); });
  const auto another = [&](const std::string& key) { return key.starts_with(word) && key != *found; };
  return found == known.end() || std::ranges::any_of(known, another) ? "" : *found;
}

}  // namespace

std::string_view kind_name(const YamlNode& node) {
  switch (node.kind) {
    case Kind::null: return "null";
    case Kind::scalar: return "text";
    case Kind::sequence: return "a list";
    case Kind::mapping: return "a map";
  }
  return "";
}

MapReader::MapReader(const YamlNode& node, std::string path, FileErrors& report)
    : node_(node.structure().kind == Kind::mapping ? node.structure() : kNoFields), path_(std::move(path)), report_(report) {
  if (node_.kind == Kind::mapping) return;
  const std::string is = node.kind == Kind::scalar ? in_quotes(node.text) : std::string(kind_name(node));
  report_.add("wrong-type", path_, "must be a map of keys and values, not " + is);
}

const YamlNode* MapReader::node(const char* key) {
  known_.emplace_back(key);
  const YamlNode* found = node_.find(key);
  return found == nullptr ? nullptr : &found->structure();
}

bool MapReader::is_text(const YamlNode& value, const std::string& at, std::string_view wanted) {
  if (value.kind == Kind::scalar) return true;
  report_.add("wrong-type", at, "must be " + std::string(wanted) + ", not " + std::string(kind_name(value)),
              value.kind == Kind::null ? "write \"\" for empty text" : "");
  return false;
}

const YamlNode* MapReader::scalar(const char* key) {
  known_.emplace_back(key);
  const YamlNode* found = node_.find(key);
  if (!found) return nullptr;
  if (found->kind == Kind::scalar) return found;
  report_.add("wrong-type", path(key), "must be a single value, not " + std::string(kind_name(*found)),
              found->kind == Kind::null ? "give one or leave the key out" : "");
  return nullptr;
}

bool MapReader::text(const char* key, std::string& out) {
  const YamlNode* found = scalar(key);
  if (found) out = found->text;
  return found != nullptr;
}

bool MapReader::boolean(const char* key, bool& out) {
  const YamlNode* found = scalar(key);
  if (!found) return false;
  if (found->text != "true" && found->text != "false") {
    report_.add("wrong-type", path(key), "must be true or false, not " + in_quotes(found->text));
    return false;
  }
  out = found->text == "true";
  return true;
}

bool MapReader::texts(const char* key, std::vector<std::string>& out) {
  const YamlNode* found = node(key);
  if (!found) return false;
  const std::string at = path(key);
  if (found->kind != Kind::sequence) {
    const std::string is = found->kind == Kind::scalar ? in_quotes(found->text) : std::string(kind_name(*found));
    report_.add("wrong-type", at, "must be a list such as [python3, train.py], not " + is);
    return false;
  }
  bool good = true;
  std::vector<std::string> read;
  for (std::size_t i = 0; i < found->items.size(); ++i) {
    good = is_text(found->items[i], item_path(at, i)) && good;
    read.push_back(found->items[i].text);
  }
  out = std::move(read);
  return good;
}

bool MapReader::text_map(const char* key, std::map<std::string, std::string>& out) {
  const YamlNode* found = node(key);
  if (!found) return false;
  const std::string at = path(key);
  if (found->kind != Kind::mapping) {
    report_.add("wrong-type", at, "must be a map such as {NAME: value}, not " + std::string(kind_name(*found)));
    return false;
  }
  bool good = true;
  for (const auto& entry : found->entries) {
    good = is_text(entry.value, join_path(at, entry.key)) && good;
    out[entry.key] = entry.value.text;
  }
  return good;
}

bool MapReader::duration(const char* key, Duration& out) { return parsed(key, out, parse_duration); }

bool MapReader::signal(const char* key, std::int32_t& out) { return parsed(key, out, parse_signal); }

bool MapReader::seconds(const char* key, Duration& out, std::uint64_t least) {
  std::int64_t value = 0;
  const auto most = std::chrono::duration_cast<std::chrono::seconds>(kLongestDuration).count();
  if (!number(key, value, static_cast<std::int64_t>(least), most)) return false;
  out = std::chrono::seconds(value);
  return true;
}

bool read_whole_number(const YamlNode& value, const std::string& at, std::int64_t least, std::int64_t most, FileErrors& report,
                       std::int64_t& out) {
  const std::string wanted = "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  std::string_view digits = value.text;
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  const bool is_number = value.kind == Kind::scalar && !digits.empty() &&
                         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) {
    const std::string is = value.kind == Kind::scalar ? in_quotes(value.text) : std::string(kind_name(value));
    report.add("wrong-type", at, wanted + ", not " + is);
    return false;
  }
  constexpr std::size_t kSafeDigits = 18;
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  std::int64_t number = 0;
  if (digits.size() <= kSafeDigits)
    for (const char c : digits) number = number * 10 + (c - '0');
  if (negative) number = -number;
  if (digits.size() > kSafeDigits || number < least || number > most) {
    report.add("out-of-range", at, wanted + ", not " + in_quotes(value.text));
    return false;
  }
  out = number;
  return true;
}

void MapReader::wrong_word(const std::string& at, const std::string& text, const std::vector<std::string>& words) {
  const std::string near = nearest(text, words);
  report_.add("out-of-range", at, "must be " + one_of(words) + ", not " + in_quotes(text),
              near.empty() ? "" : "did you mean " + in_quotes(near) + "?");
}

void MapReader::done() {
  for (const auto& entry : node_.entries) {
    if (std::find(known_.begin(), known_.end(), entry.key) != known_.end()) continue;
    if (report_.full()) return report_.add("unknown-key", path_, "unknown key");  // further mistakes are not kept: spare the search
    std::string near = nearest(entry.key, known_);
    if (near.empty()) near = begun_with(entry.key, known_);
    std::string message = "unknown key " + in_quotes(entry.key);
    message += near.empty() ? ", not " + one_of(known_) : "; did you mean " + in_quotes(near) + "?";
    report_.add("unknown-key", path(entry.key), std::move(message));
  }
}

}  // namespace dtrain::job
