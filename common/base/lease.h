// What the two sides of a lease share: the holder (common/task/lease.h) and the coordinator that grants it
// (common/cluster/lease_grants.h). docs/leases.md derives the numbers.
//
// The idea is that of Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
// Consistency" (SOSP 1989), sections 2 and 5: a promise for a time, measured by each side on its own clock.
#pragma once

#include <cstdint>

#include "common/base/time.h"

namespace dtrain {

// A task begins to freeze this long before its lease ends, and is killed if freezing takes longer.
inline constexpr Duration kFreezeAhead = 1s;
// How long a task may run beyond the end of its lease if its host was stopped at that moment and continued later:
inline constexpr Duration kWakeWindow = 50ms;   // until the shim runs again (0.2 ms under SCHED_FIFO),
inline constexpr Duration kLateFreeze = 100ms;  // until its freezing is confirmed, or else it is killed,
inline constexpr Duration kKillTime = 50ms;     // and until the killed task has ended
inline constexpr Duration kExposure = kWakeWindow + kLateFreeze + kKillTime;
inline constexpr std::int64_t kDriftPercent = 1;  // by which a clock may be fast or slow

// The shortest time on one clock in which a lease and the exposure after it are over on any other clock: this clock
// may be fast and the other slow.
constexpr Duration counted_lease(Duration lease) { return (lease + kExposure) * (100 + kDriftPercent) / (100 - kDriftPercent) + 1ns; }

}  // namespace dtrain
