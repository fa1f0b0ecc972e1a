// CLOCK_BOOTTIME where a part of the agent cannot wait for its loop's reading of it.
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
