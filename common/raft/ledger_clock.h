// The ledger's time: for how long this history has had a leader and voters that measured it.
//
// Every entry and heartbeat carries the leader's value; a follower goes on from the last one it was told with
// its own monotonic clock, and that is where it begins when it leads itself. What nobody measured (a whole
// council down) does not count, so the value never runs ahead of real time but by the clocks' drift. No wall
// clock is involved.
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
  // A leader's word. Its newest counts, also when our clock went faster; an older one that comes late says
  // nothing.
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
