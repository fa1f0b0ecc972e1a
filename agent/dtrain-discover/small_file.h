// Reads files of /proc and /sys, below a root that tests choose.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::discover {

inline constexpr std::size_t kSmallFileBytes = 64 << 10;  // of one file; the rest is not read
inline constexpr std::size_t kDirectoryEntries = 4096;    // further ones are not looked at

// Without its last newline. Unset: it cannot be read.
std::optional<std::string> read_small_file(const std::string& path);
// A file that holds one decimal number.
std::optional<std::uint64_t> read_number(const std::string& path);
// A file of lines "KEY VALUE" or "KEY: VALUE"; a key with blanks needs the colon.
std::map<std::string, std::string> read_keys(const std::string& path, char separator);
// Names, sorted; without "." and "..". Unset: there is no such directory.
std::optional<std::vector<std::string>> list_directory(const std::string& path);

std::optional<std::uint64_t> to_number(std::string_view text);
// Without blanks at either end, without control characters, at most `bytes`.
std::string clean_text(std::string_view text, std::size_t bytes);

}  // namespace dtrain::discover
