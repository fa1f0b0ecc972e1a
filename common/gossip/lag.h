// Measures how late this node's own timers run. Whatever delays this node also delays reading the answers that
// arrived, and delays the answers of peers that share its processors.
#pragma once

#include <algorithm>

#include "common/base/time.h"

namespace dtrain::gossip {

class Lag {
 public:
  static constexpr Duration kMost = 10s;       // larger values count as this
  static constexpr Duration kRemembered = 2s;  // up to twice as long

  // A timer ran `late` after it was due. `now` never decreases.
  void felt(Duration late, Instant now) {
    turn(now);
    newer_ = std::max(newer_, std::min(late, kMost));
  }
  // The largest lateness of late.
  Duration at(Instant now) const {
    if (now - since_ >= 2 * kRemembered) return {};
    return now - since_ >= kRemembered ? newer_ : std::max(older_, newer_);
  }

 private:
  void turn(Instant now) {
    if (now - since_ < kRemembered) return;
    older_ = now - since_ < 2 * kRemembered ? newer_ : Duration{};
    newer_ = {};
    since_ = now;
  }

  Instant since_{};
  Duration older_{}, newer_{};
};

}  // namespace dtrain::gossip
