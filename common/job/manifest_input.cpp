#include "common/job/manifest_input.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;

constexpr std::string_view kParam = "${param:";

// "spec.env.a\.b" -> spec, env, a.b. Empty when a name is empty.
std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> names(1);
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\' && i + 1 < path.size()) names.back() += path[++i];
    else if (path[i] == '.') names.emplace_back();
    else names.back() += path[i];
  }
  if (std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.empty(); })) names.clear();
  return names;
}

bool is_index(std::string_view name, std::size_t size) {
  constexpr std::size_t kIndexDigits = 6;
  if (name.empty() || name.size() > kIndexDigits) return false;
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) return false;
  return std::stoul(std::string(name)) < size;
}

// All of it stands in the option.
void mark_from_option(YamlNode& node) {
  node.from_option = true;
  for (YamlNode& item : node.items) mark_from_option(item);
  for (YamlEntry& entry : node.entries) {
    entry.line = 0;
    mark_from_option(entry.value);
  }
}

// The value of a --set: text, and what it means where a list or a map is wanted. Braces of a template are none for a field of text.
YamlNode option_value(const std::string& text) {
  YamlNode node;
  node.kind = Kind::scalar;
  node.text = text;
  if (text.starts_with('[') || text.starts_with('{'))
    if (auto meant = parse_yaml(text)) node.meant.push_back(std::move(*meant));
  mark_from_option(node);
  for (YamlNode& meant : node.meant) mark_from_option(meant);
  return node;
}

// The child of `node`, made where a map can hold it; null where it cannot.
YamlNode* child_for_set(YamlNode& node, const std::string& name) {
  if (!node.meant.empty()) node = YamlNode(node.meant.front());  // of an earlier --set
  if (node.kind == Kind::sequence) return is_index(name, node.items.size()) ? &node.items[std::stoul(name)] : nullptr;
  if (node.kind == Kind::scalar) return nullptr;
  node.kind = Kind::mapping;  // a null becomes a map
  for (auto& entry : node.entries)
    if (entry.key == name) return &entry.value;
  node.entries.push_back({name, 0, {}});
  node.entries.back().value.from_option = true;
  return &node.entries.back().value;
}

class Resolver {
 public:
  Resolver(const std::map<std::string, std::string>& params, std::set<std::string>& used, FileErrors& report, bool keep_unknown)
      : params_(params), used_(used), report_(report), keep_unknown_(keep_unknown) {}

  void visit(YamlNode& node, const std::string& path, std::uint32_t line) {
    report_.place(path, node.from_option ? 0 : line);
    if (node.kind == Kind::scalar) substitute(node.text, path);
    for (std::size_t i = 0; i < node.items.size(); ++i) visit(node.items[i], item_path(path, i), node.items[i].line);
    for (YamlNode& meant : node.meant) visit(meant, path, 0);
    check_twice(node, path);
    for (auto& entry : node.entries) visit(entry.value, join_path(path, entry.key), entry.line);
  }

 private:
  void check_twice(const YamlNode& node, const std::string& path) {
    std::map<std::string_view, std::uint32_t> first;
    for (const auto& entry : node.entries) {
      const auto [known, inserted] = first.emplace(entry.key, entry.line);
      if (inserted) continue;
      report_.add_at(entry.line, "syntax", join_path(path, entry.key),
                     "key " + in_quotes(entry.key) + " is given twice, first on line " + std::to_string(known->second), "remove one");
    }
  }

  void substitute(std::string& text, const std::string& path) {
    if (text.find(kParam) == std::string::npos || (keep_unknown_ && params_.empty())) return;
    std::string out;
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::size_t at = rest.find(kParam);
      if (at == std::string_view::npos) break;
      const bool escaped = at > 0 && rest[at - 1] == '$';
      out += rest.substr(0, escaped ? at - 1 : at);
      rest.remove_prefix(at + kParam.size());
      if (escaped) {
        out += kParam;
        continue;
      }
      const std::size_t end = rest.find('}');
      if (end == std::string_view::npos) return report_.add("syntax", path, "${param: has no closing brace");
      append(out, std::string(rest.substr(0, end)), path);
      rest.remove_prefix(end + 1);
    }
    out += rest;
    text = std::move(out);
  }

  void append(std::string& out, const std::string& name, const std::string& path) {
    used_.insert(name);
    const auto value = params_.find(name);
    if (value == params_.end() && keep_unknown_) {
      out += std::string(kParam) + name + "}";
      return;
    }
    if (value == params_.end()) {
      report_.add("missing", path, "parameter " + in_quotes(name) + " has no value", "give --param " + name + "=VALUE");
      return;
    }
    added_ += value->second.size();
    if (added_ <= kExpandedBytes) out += value->second;
    else if (!told_) report_.add("limit", path, "parameters bring in more than " + std::to_string(kExpandedBytes) + " bytes of text");
    told_ = added_ > kExpandedBytes;
  }

  const std::map<std::string, std::string>& params_;
  std::set<std::string>& used_;
  FileErrors& report_;
  bool keep_unknown_;
  std::size_t added_ = 0;
  bool told_ = false;
};

}  // namespace

void apply_sets(YamlNode& root, const std::vector<std::pair<std::string, std::string>>& sets, FileErrors& report) {
  for (const auto& set : sets) {
    const std::string &path = set.first, &value = set.second;
    report.place(path, 0);
    const auto refuse = [&](const char* why) { report.add("syntax", path, std::string("--set ") + why, "give --set PATH=VALUE"); };
    if (!is_utf8(value) || !is_utf8(path) || value.find('\0') != std::string::npos) {
      refuse("must be UTF-8 without NUL");
      continue;
    }
    const auto names = split_path(path);
    if (names.empty() || names.size() >= limits::kYamlDepth) {
      refuse("needs a path of names joined by dots");
      continue;
    }
    YamlNode* node = &root;
    for (const auto& name : names)
      if (node) node = child_for_set(*node, name);
    if (!node) {
      refuse("names nothing that can be set");
      continue;
    }
    *node = option_value(value);
  }
}

void resolve(YamlNode& root, const std::map<std::string, std::string>& params, std::set<std::string>& used, FileErrors& report,
             bool keep_unknown) {
  Resolver(params, used, report, keep_unknown).visit(root, "", root.line);
}

std::string escape_params(std::string_view text) {
  std::string out;
  for (std::size_t at = text.find(kParam); at != std::string_view::npos; at = text.find(kParam)) {
    out += text.substr(0, at);
    out += '$';
    out += kParam;
    text.remove_prefix(at + kParam.size());
  }
  return out += text;
}

}  // namespace dtrain::job
