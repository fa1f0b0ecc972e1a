// What the two sides of a lease have in common: who holds it (common/task/lease.h) and who grants it
// (common/cluster/lease_grants.h). docs/leases.md says why the numbers are these.
//
// The idea is that of Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
// Consistency" (SOSP 1989), sections 2 and 5: a promise for a time, measured by each side on its own clock.
#pragma once

#include <compare>
#include <cstdint>

#include "common/base/time.h"

namespace dtrain {

// The order of a coordinator's orders: a lower one is refused. `revision` counts within an epoch, per host.
struct Fence {
  std::uint64_t epoch = 0, revision = 0;
  auto operator<=>(const Fence&) const = default;
};

// A task begins to freeze so long before its lease ends, and is killed where that takes longer.
inline constexpr Duration kFreezeAhead = 1s;
// How long a task may run beyond the end of its lease: its host was stopped over that moment, and went on.
inline constexpr Duration kWakeWindow = 50ms;   // until the shim runs again (0.2 ms under SCHED_FIFO)
inline constexpr Duration kLateFreeze = 100ms;  // and its freezing is confirmed; then it is killed
inline constexpr Duration kKillTime = 50ms;     // and has ended
inline constexpr Duration kExposure = kWakeWindow + kLateFreeze + kKillTime;
inline constexpr std::int64_t kDriftPercent = 1;  // a clock gains or loses at most so much

// The shortest time on one clock in which, on any other, a lease and the exposure behind it are over: this one may
// run fast and the other slow.
constexpr Duration counted_lease(Duration lease) {
  return (lease + kExposure) * (100 + kDriftPercent) / (100 - kDriftPercent) + 1ns;
}

}  // namespace dtrain
