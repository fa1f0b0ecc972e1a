// The seeds to run: "7" or "1..200".
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace dtrain::sim {

struct SeedRange {
  std::uint64_t first = 1, last = 1;
  static Result<SeedRange> parse(std::string_view text);
};

inline Result<SeedRange> SeedRange::parse(std::string_view text) {
  const auto number = [](std::string_view digits, std::uint64_t& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc{} && end == digits.data() + digits.size();
  };
  SeedRange range;
  const std::size_t dots = text.find("..");
  const bool good =
      number(text.substr(0, dots), range.first) && (dots == std::string_view::npos || number(text.substr(dots + 2), range.last));
  if (dots == std::string_view::npos) range.last = range.first;
  if (!good || range.last < range.first)
    return fail(ErrorCode::invalid, "could not read the seeds '" + std::string(text) + "': they are no range", "write FIRST..LAST");
  return range;
}

}  // namespace dtrain::sim
