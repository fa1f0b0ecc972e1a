// The monotonic clock of one simulated host, relative to the world's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/time.h"

namespace dtrain::sim {

// CLOCK_BOOTTIME of a host: begins with each boot, and may be fast or slow.
class SimClock {
 public:
  void boot(Instant world, Duration up_already) {
    boot_ = world;
    base_ = up_already;
  }
  void drift(Instant world, std::int32_t per_million) {  // from now on; never jumps
    base_ = local(world).time_since_epoch();
    boot_ = world;
    drift_ = per_million;
  }
  Instant local(Instant world) const {
    const Duration since = world - boot_;
    return Instant{} + base_ + since + Duration(since.count() / 1'000'000 * drift_);
  }
  // The first instant of the world at which local() has reached `local_time`.
  Instant world(Instant local_time) const {
    if (local_time == kNever) return kNever;
    const Duration since = local_time - Instant{} - base_;
    if (since > kFar) return kNever;
    Instant at = boot_ + Duration(since.count() / (1'000'000 + drift_) * 1'000'000);
    while (local(at) < local_time) at += std::max(Duration(1), (local_time - local(at)) * 9 / 10);
    return at;
  }

 private:
  static constexpr Duration kFar = std::chrono::hours(24 * 365);
  Instant boot_{};
  Duration base_{0};
  std::int32_t drift_ = 0;
};

}  // namespace dtrain::sim
