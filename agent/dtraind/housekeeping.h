// What an agent looks after by the way, when it is awake anyway: nothing here wakes it.
#pragma once

#include <chrono>
#include <optional>

#include "common/base/log.h"
#include "common/base/time.h"

namespace dtrain::daemon {

class Housekeeping {
 public:
  static constexpr Duration kTrimEvery = 60s;
  static constexpr std::chrono::milliseconds kClockJump{60'000};  // smaller ones are an NTP daemon at work

  explicit Housekeeping(Log& log) : log_(log) {}
  // Once per turn of the loop.
  void turn(const Now& now);

 private:
  void watch_clock(const Now& now);

  Log& log_;
  std::optional<std::chrono::milliseconds> offset_;  // of the wall clock to the boot clock
  Instant next_trim_{};
};

// Gives back memory that the start or a burst needed: free heap, and clean pages of program files, which are read
// again from the page cache where they are used. Pages that were written to (relocated data) stay.
void trim_memory();

}  // namespace dtrain::daemon
