// A NodeId as 16 bytes, the form in which gossip compares, hashes and sends it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/ids.h"

namespace dtrain {

struct MemberId {
  std::uint64_t high = 0, low = 0;

  bool none() const { return high == 0 && low == 0; }
  NodeId text() const;                                          // 32 lower-case hex digits
  static std::optional<MemberId> parse(std::string_view text);  // exactly what text() writes
  auto operator<=>(const MemberId&) const = default;
};

}  // namespace dtrain
