// YAML text as a tree of literal text with lines. No scalar has a type here: `true`, `3` and `on` stay what was
// written. Built from yaml-cpp's events, so that every limit is checked while reading and nothing grows beyond it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::job {

struct YamlEntry;

struct YamlNode {
  enum class Kind : unsigned char { null, scalar, sequence, mapping };
  Kind kind = Kind::null;
  bool from_option = false;        // given by --set: `line` means nothing
  std::uint32_t line = 0;          // from 1
  std::string text;                // of a scalar
  std::vector<YamlNode> items;     // of a sequence
  std::vector<YamlEntry> entries;  // of a mapping, as written: a key may be there twice
  std::vector<YamlNode> meant;     // of a --set such as [a, b]: the list or map that it is for a field that wants one

  const YamlNode& structure() const { return meant.empty() ? *this : meant.front(); }
  const YamlNode* find(std::string_view key) const;  // the first; null when there is none
};

struct YamlEntry {
  std::string key;
  std::uint32_t line = 0;
  YamlNode value;
};

struct YamlError {
  std::string code;        // syntax | limit
  std::uint32_t line = 0;  // 0: of the whole
  std::string message;
  std::string next;
};

// An alias counts as if its value were written out once more.
inline constexpr std::size_t kExpandedBytes = 4 << 20;  // of scalars and keys in all, aliases expanded: refused

// Exactly one document. Refused: more than limits::kJobFileBytes, kYamlNodes or kYamlDepth; text that is not
// UTF-8 or holds control characters; tags other than those of plain text, lists and maps; merge keys; keys
// that are no text.
tl::expected<YamlNode, YamlError> parse_yaml(std::string_view text);

// The same for any number of documents, of which the limits hold together. Empty ones are left out.
tl::expected<std::vector<YamlNode>, YamlError> parse_yaml_documents(std::string_view text);

}  // namespace dtrain::job
