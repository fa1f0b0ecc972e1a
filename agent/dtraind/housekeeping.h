// Chores that the agent does while it is awake anyway: nothing here wakes it.
#pragma once

#include <chrono>
#include <optional>

#include <functional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/base/time.h"
#include "common/node/disk_room.h"

namespace dtrain::daemon {

class Housekeeping {
 public:
  static constexpr Duration kTrimEvery = 60s;
  static constexpr Duration kLookEvery = 2s;                      // pause between two looks at the disks
  static constexpr std::chrono::milliseconds kClockJump{60'000};  // smaller jumps are an NTP daemon at work

  using DiskSink = std::function<void(node::DiskSeen)>;
  explicit Housekeeping(Log& log) : log_(log) {}
  // Reports the free space of these file systems, one after the other at each look.
  void watch_disks(std::vector<std::string> paths, DiskSink sink);
  // To be called once in each turn of the loop.
  void turn(const Now& now);

 private:
  void watch_clock(const Now& now);
  void look_at_disks() const;

  Log& log_;
  std::vector<std::string> disks_;
  DiskSink disk_sink_;
  Instant next_look_{};
  std::optional<std::chrono::milliseconds> offset_;  // wall clock minus boot clock
  Instant next_trim_{};
};

// Returns memory that the start or a burst needed: free heap, and clean pages of program files, which are read again
// from the page cache when they are used. Written pages (relocated data) stay.
void trim_memory();

}  // namespace dtrain::daemon
