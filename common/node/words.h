// Makes parts of sentences for people.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::node {

inline std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// "1.2 GiB".
inline std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  std::uint64_t rest = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) rest = bytes % 1024, bytes /= 1024;
  return std::to_string(bytes) + (unit == 0 ? "" : "." + std::to_string(rest * 10 / 1024)) + " " + kUnits[unit];
}

}  // namespace dtrain::node
