// Virtual time: a heap of actions, ordered by time, then by when they were added. Nothing here reads a real clock.
//
// World time is an Instant that starts at zero with the run and never jumps, whatever the simulated host's own clocks do (HostClock).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/time.h"

namespace dtrain::sim {

class Timeline {
 public:
  using Action = std::function<void()>;

  Instant now() const { return now_; }
  void at(Instant when, Action action);  // an instant that has passed means now, after the actions that wait for now
  void after(Duration delay, Action action) { at(now_ + delay, std::move(action)); }
  Instant next() const { return heap_.empty() ? kNever : heap_.front().at; }
  void advance_to(Instant when);  // never backwards; runs nothing
  void run_next();                // advances to next() and runs it
  std::uint64_t done() const { return done_; }

 private:
  struct Entry {
    Instant at;
    std::uint64_t order;
    Action action;
  };
  static bool later(const Entry& a, const Entry& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }

  Instant now_{};
  std::uint64_t order_ = 0, done_ = 0;
  std::vector<Entry> heap_;
};

// The two clocks of a simulated host. A reboot restarts CLOCK_BOOTTIME; the wall clock may jump.
class HostClock {
 public:
  Now read(Instant world) const {
    return Now{Instant(world - boot_),
               WallTime(kEpoch + std::chrono::duration_cast<std::chrono::milliseconds>(world.time_since_epoch()) + jump_)};
  }
  Instant to_world(Instant boot) const {
    // kNever, and values that would overflow, stay kNever.
    if (boot >= kNever - boot_.time_since_epoch()) return kNever;
    return boot + boot_.time_since_epoch();
  }
  void reboot(Instant world) { boot_ = world; }
  void jump(std::chrono::milliseconds by) { jump_ += by; }

 private:
  static constexpr std::chrono::milliseconds kEpoch{1'790'000'000'000};  // some day in 2026
  Instant boot_{};
  std::chrono::milliseconds jump_{0};
};

}  // namespace dtrain::sim
