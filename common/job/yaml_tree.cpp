#include "common/job/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "common/base/limits.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;

// Leaves the library's parser from inside an event; caught in this file.
struct Refused {
  YamlError error;
};

[[noreturn]] void refuse(std::string code, std::uint32_t line, std::string message, std::string next = "") {
  throw Refused{{std::move(code), line, std::move(message), std::move(next)}};
}

std::uint32_t line_of(const YAML::Mark& mark) { return mark.line < 0 ? 0 : static_cast<std::uint32_t>(mark.line) + 1; }

struct Extent {
  std::size_t nodes = 0, bytes = 0, depth = 0;
};

Extent extent_of(const YamlNode& node) {
  Extent out{1, node.text.size(), 1};
  const auto add = [&](const YamlNode& child) {
    const Extent inner = extent_of(child);
    out.nodes += inner.nodes;
    out.bytes += inner.bytes;
    out.depth = std::max(out.depth, inner.depth + 1);
  };
  for (const auto& item : node.items) add(item);
  for (const auto& entry : node.entries) {
    ++out.nodes;
    out.bytes += entry.key.size();
    add(entry.value);
  }
  return out;
}

class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(bool several) : several_(several) {}
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (!several_ && !roots_.empty())
      refuse("syntax", line_of(mark), "a second document starts here: a job file holds one job", "split the file");
    anchored_.clear();
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (expects_key()) refuse("syntax", line_of(mark), "a key must be text, not null", "put it in quotes");
    add(make(Kind::null, mark), anchor, mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    check_tag(tag, "tag:yaml.org,2002:str", mark);
    if (!is_utf8(value) || value.find('\0') != std::string::npos)
      refuse("syntax", line_of(mark), "text must be UTF-8 without NUL, not " + in_quotes(value));
    if (expects_key()) return set_key(mark, tag, anchor, value);
    YamlNode node = make(Kind::scalar, mark);
    node.text = value;
    add(std::move(node), anchor, mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (expects_key()) refuse("syntax", line_of(mark), "a key must be plain text, not an alias", "write the key out");
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) refuse("syntax", line_of(mark), "an alias stands inside the value that it names");
    const Extent extent = extent_of(found->second);
    count(extent, mark);
    attach(YamlNode(found->second));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(Kind::sequence, mark, tag, "tag:yaml.org,2002:seq", anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(Kind::mapping, mark, tag, "tag:yaml.org,2002:map", anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  std::vector<YamlNode>& roots() { return roots_; }

 private:
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    std::optional<YamlEntry> entry;  // its key was read, its value is next
  };

  static YamlNode make(Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.line = line_of(mark);
    return node;
  }
  bool expects_key() const { return !open_.empty() && open_.back().node.kind == Kind::mapping && !open_.back().entry; }

  static void check_tag(const std::string& tag, std::string_view allowed, const YAML::Mark& mark) {
    if (tag.empty() || tag == "?" || tag == "!" || tag == allowed) return;
    refuse("syntax", line_of(mark), "tag " + in_quotes(tag) + " is not supported", "leave it out: every value is read as text");
  }

  // Adds to the size of the document with aliases written out. `extent.depth` is the depth below the open containers.
  void count(const Extent& extent, const YAML::Mark& mark) {
    nodes_ += extent.nodes;
    bytes_ += extent.bytes;
    if (open_.size() + extent.depth > limits::kYamlDepth)
      refuse("limit", line_of(mark), "nested deeper than " + std::to_string(limits::kYamlDepth) + " levels");
    if (nodes_ > limits::kYamlNodes)
      refuse("limit", line_of(mark), "more than " + std::to_string(limits::kYamlNodes) + " values, counting what aliases repeat");
    if (bytes_ > kExpandedBytes)
      refuse("limit", line_of(mark), "more than " + std::to_string(kExpandedBytes) + " bytes of text, counting what aliases repeat");
  }

  void set_key(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& key) {
    if (anchor != 0) refuse("syntax", line_of(mark), "a key cannot be anchored", "anchor its value");
    if (key == "<<" && tag == "?")
      refuse("syntax", line_of(mark), "merge keys (<<) are not supported", "write the keys out, or use an alias for the whole value");
    count({1, key.size(), 1}, mark);
    open_.back().entry = YamlEntry{key, line_of(mark), {}};
  }
  void add(YamlNode node, YAML::anchor_t anchor, const YAML::Mark& mark) {
    count({1, node.text.size(), 1}, mark);
    if (anchor != 0) remember(node, anchor, mark);
    attach(std::move(node));
  }
  void open(Kind kind, const YAML::Mark& mark, const std::string& tag, std::string_view allowed, YAML::anchor_t anchor) {
    check_tag(tag, allowed, mark);
    if (expects_key()) refuse("syntax", line_of(mark), "a key must be plain text, not a list or a map");
    count({1, 0, 1}, mark);
    open_.push_back({make(kind, mark), anchor, std::nullopt});
  }
  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.anchor != 0) {
      YAML::Mark mark;
      mark.line = static_cast<int>(done.node.line) - 1;
      remember(done.node, done.anchor, mark);
    }
    attach(std::move(done.node));
  }
  // The copy counts too, so that nested anchors cost no more memory than their text written out.
  void remember(const YamlNode& node, YAML::anchor_t anchor, const YAML::Mark& mark) {
    count(extent_of(node), mark);
    anchored_[anchor] = node;
  }
  void attach(YamlNode node) {
    if (open_.empty()) {
      roots_.push_back(std::move(node));
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == Kind::sequence) {
      parent.node.items.push_back(std::move(node));
    } else {
      parent.entry->value = std::move(node);
      parent.node.entries.push_back(std::move(*parent.entry));
      parent.entry.reset();
    }
  }

  std::vector<Open> open_;
  std::map<YAML::anchor_t, YamlNode> anchored_;
  std::vector<YamlNode> roots_;
  bool several_;
  std::size_t nodes_ = 0, bytes_ = 0;
};

std::uint32_t line_at(std::string_view text, std::size_t offset) {
  return static_cast<std::uint32_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n')) + 1;
}

// Checks that need no knowledge of YAML. The library would guess UTF-16 or UTF-32 from a BOM or NULs.
std::optional<YamlError> check_bytes(std::string_view text) {
  if (text.size() > limits::kJobFileBytes)
    return YamlError{
        "limit", 0,
        "the file has " + std::to_string(text.size()) + " bytes; at most " + std::to_string(limits::kJobFileBytes) + " are read",
        "put data into the package"};
  const auto bad = std::find_if(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
  });
  if (bad != text.end()) {
    const auto offset = static_cast<std::size_t>(bad - text.begin());
    return YamlError{"syntax", line_at(text, offset),
                     "the file is not text: it holds the control character " + in_quotes(text.substr(offset, 1)), ""};
  }
  if (!is_utf8(text)) return YamlError{"syntax", 0, "the file is not text: it is not UTF-8", "save it as UTF-8"};
  return std::nullopt;
}

// The library keeps every token of a line until it knows whether an opening bracket starts a key, and reports an
// endless run of them only after reading all. No real file has that many in a row.
std::optional<YamlError> check_brackets(std::string_view text) {
  std::size_t run = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == '{') {
      if (++run > limits::kYamlDepth)
        return YamlError{"limit", line_at(text, i), "nested deeper than " + std::to_string(limits::kYamlDepth) + " levels", ""};
    } else if (text[i] != ' ' && text[i] != '\n') {
      run = 0;
    }
  }
  return std::nullopt;
}

std::optional<std::uint32_t> hex_code(std::string_view text) {
  constexpr std::string_view kEscape = "\\u";
  constexpr std::size_t kDigits = 4;
  if (!text.starts_with(kEscape) || text.size() < kEscape.size() + kDigits) return std::nullopt;
  std::uint32_t code = 0;
  const char* end = text.data() + kEscape.size() + kDigits;
  return std::from_chars(text.data() + kEscape.size(), end, code, 16).ptr == end ? std::optional(code) : std::nullopt;
}

// JSON is YAML with one exception: it writes a character beyond 0xFFFF as two escapes (surrogates), YAML as one of
// eight digits. All text of a JSON file stands in double quotes, so every escape is one.
std::string join_surrogates(std::string_view text) {
  constexpr std::size_t kPair = 12;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  std::string out;
  if (first == std::string_view::npos || text[first] != '{') return std::string(text);
  for (std::size_t i = 0; i < text.size();) {
    const auto high = hex_code(text.substr(i));
    const auto low = high && *high >= 0xD800 && *high < 0xDC00 ? hex_code(text.substr(i + kPair / 2)) : std::nullopt;
    if (low && *low >= 0xDC00 && *low < 0xE000) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      const std::uint32_t code = 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
      out += "\\U";
      for (int shift = 28; shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
      i += kPair;
      continue;
    }
    if (text[i] == '\\' && i + 1 < text.size()) out += text[i++];  // with the character that it escapes, which may be another backslash
    out += text[i++];
  }
  return out;
}

// True if a block text (| or >) begins at the end of this line.
bool begins_text(std::string_view line) {
  const std::size_t last = line.find_last_not_of(" \t\r+-0123456789");
  return last != std::string_view::npos && (line[last] == '|' || line[last] == '>');
}

// The library has a different message for each place with a wrong tab. The first faulty line is the one where it
// stopped, or one above.
std::optional<YamlError> indenting_tab(std::string_view text, std::uint32_t line) {
  constexpr std::size_t kNowhere = std::string_view::npos;
  std::size_t text_above = kNowhere;  // indentation of the line that a block text began in
  std::uint32_t at = 1;
  for (std::size_t begin = 0; begin < text.size() && at <= line; ++at) {
    const std::string_view here = text.substr(begin, text.find('\n', begin) - begin);
    begin += here.size() + 1;
    const std::size_t indentation = here.find_first_not_of(' ');
    if (indentation == kNowhere || (text_above != kNowhere && indentation > text_above)) continue;
    if (here[indentation] == '\t')
      return YamlError{"syntax", at, "this line is indented with a tab, which YAML does not allow", "indent it with blanks"};
    text_above = begins_text(here) ? indentation : kNowhere;
  }
  return std::nullopt;
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& entry : entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

namespace {

tl::expected<std::vector<YamlNode>, YamlError> read_documents(std::string_view text, bool several) {
  if (auto error = check_bytes(text)) return tl::unexpected(std::move(*error));
  if (auto error = check_brackets(text)) return tl::unexpected(std::move(*error));
  try {
    std::istringstream stream{join_surrogates(text)};
    YAML::Parser parser(stream);
    Builder builder(several);
    while (parser.HandleNextDocument(builder)) {
    }
    return std::move(builder.roots());
  } catch (Refused& refused) {
    return tl::unexpected(std::move(refused.error));
  } catch (const YAML::Exception& e) {
    if (auto tab = indenting_tab(text, line_of(e.mark))) return tl::unexpected(std::move(*tab));
    return tl::unexpected(YamlError{"syntax", line_of(e.mark), "this is not YAML: " + e.msg, ""});
  } catch (const std::exception& e) {
    return tl::unexpected(YamlError{"syntax", 0, std::string("this is not YAML: ") + e.what(), ""});
  }
}

YamlError empty_file() { return {"syntax", 0, "the file is empty: it holds no job", ""}; }

}  // namespace

tl::expected<YamlNode, YamlError> parse_yaml(std::string_view text) {
  auto documents = read_documents(text, false);
  if (!documents) return tl::unexpected(std::move(documents.error()));
  if (documents->empty()) return tl::unexpected(empty_file());
  return std::move(documents->front());
}

tl::expected<std::vector<YamlNode>, YamlError> parse_yaml_documents(std::string_view text) {
  auto documents = read_documents(text, true);
  if (!documents) return documents;
  std::erase_if(*documents, [](const YamlNode& node) { return node.kind == Kind::null; });
  if (documents->empty()) return tl::unexpected(empty_file());
  return documents;
}

}  // namespace dtrain::job
