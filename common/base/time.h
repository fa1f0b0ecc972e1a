// Strong time types. Nothing in common/ reads a clock: every instant is handed in by the caller.
//
// Instant  - CLOCK_BOOTTIME of this host, nanoseconds. Monotonic, counts suspends; compares only within one boot.
// Duration - difference of two Instants.
// WallTime - milliseconds since the Unix epoch, for people to read. No decision may depend on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dtrain {

using namespace std::chrono_literals;

using Duration = std::chrono::nanoseconds;

struct BootClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  static constexpr bool is_steady = true;
};
using Instant = std::chrono::time_point<BootClock, Duration>;
inline constexpr Instant kNever = Instant::max();

struct WallClockTag {
  using duration = std::chrono::milliseconds;
  using rep = duration::rep;
  using period = duration::period;
  static constexpr bool is_steady = false;
};
using WallTime = std::chrono::time_point<WallClockTag, std::chrono::milliseconds>;

// What the agent passes to the deciding code with every event: the one instant of this turn.
struct Now {
  Instant boot{};
  WallTime wall{};
};

// RFC 3339 UTC with milliseconds: 2026-11-20T07:00:00.123Z
std::string to_rfc3339(WallTime t);

}  // namespace dtrain
