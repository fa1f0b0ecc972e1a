// The ledger's time: how long this history has had a leader, as measured by its voters.
//
// Every entry and heartbeat carries the leader's value. A follower continues from the last value it received with its own
// monotonic clock, and starts from there when it becomes leader. Time that nobody measured (a whole council down) does
// not count, so the value never runs ahead of real time by more than the drift of the clocks. No wall clock is involved.
#pragma once

#include <algorithm>

#include "common/base/time.h"
#include "common/wire/raft.h"

namespace dtrain::raft {

class LedgerClock {
 public:
  explicit LedgerClock(Duration stored) : value_(stored) {}

  void start(Instant now) { at_ = now; }
  Duration now(Instant now) const { return std::min(value_ + (now - at_), wire::kMostElapsed); }
  // Takes a leader's value. The newest one counts even if the clock here went faster; an older one that arrives late is ignored.
  void told(Duration elapsed, Instant now) {
    if (elapsed <= told_ && elapsed <= this->now(now)) return;
    told_ = value_ = elapsed;
    at_ = now;
  }
  void new_leader() { told_ = {}; }

 private:
  Duration value_;
  Duration told_{};
  Instant at_{};
};

}  // namespace dtrain::raft
