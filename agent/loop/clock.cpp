#include "agent/loop/clock.h"

#include <time.h>

#include "common/base/check.h"

namespace dtrain::loop {
namespace {

std::int64_t nanoseconds_of(clockid_t clock) {
  timespec t{};
  CHECK(::clock_gettime(clock, &t) == 0);  // both clocks exist on every supported kernel
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

Now read_clocks() {
  Now now;
  now.boot = Instant(Duration(nanoseconds_of(CLOCK_BOOTTIME)));
  now.wall = WallTime(std::chrono::milliseconds(nanoseconds_of(CLOCK_REALTIME) / 1'000'000));
  return now;
}

}  // namespace dtrain::loop
