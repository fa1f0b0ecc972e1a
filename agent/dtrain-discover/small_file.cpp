#include "agent/dtrain-discover/small_file.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"

namespace dtrain::discover {
namespace {

constexpr const char* kBlanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(kSmallFileBytes, '\0');
  if (!fd || !read_into(fd.get(), text)) return std::nullopt;
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::optional<std::uint64_t> to_number(std::string_view text) {
  text = trimmed(text);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const auto text = read_small_file(path);
  return text ? to_number(*text) : std::nullopt;
}

std::map<std::string, std::string> read_keys(const std::string& path, char separator) {
  std::map<std::string, std::string> keys;
  const auto text = read_small_file(path);
  for (std::string_view rest = text ? std::string_view(*text) : std::string_view(); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const auto at = line.find(separator);
    if (at == std::string_view::npos) continue;
    keys[std::string(trimmed(line.substr(0, at)))] = trimmed(line.substr(at + 1));
  }
  return keys;
}

std::optional<std::vector<std::string>> list_directory(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), &::closedir);
  if (!directory) return std::nullopt;
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    if (names.size() == kDirectoryEntries) break;
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string clean_text(std::string_view text, std::size_t bytes) {
  std::string out;
  for (const char c : trimmed(text)) {
    if (out.size() == bytes) break;
    out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f ? '?' : c;
  }
  return out;
}

}  // namespace dtrain::discover
