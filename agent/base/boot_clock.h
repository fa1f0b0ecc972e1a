// Returns the time of CLOCK_BOOTTIME now, for the parts of the agent that cannot wait for their loop's next reading
// of that clock.
#pragma once

#include <time.h>

#include "common/base/time.h"

namespace dtrain {

inline Instant boot_now() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return Instant(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
}

}  // namespace dtrain
