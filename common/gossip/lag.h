// How far this node is behind: how late its own timers come. What keeps it from running keeps the answers
// that came in from being read, and those it asks, when they share its processors, from giving them.
#pragma once

#include <algorithm>

#include "common/base/time.h"

namespace dtrain::gossip {

class Lag {
 public:
  static constexpr Duration kMost = 10s;       // more counts as that much
  static constexpr Duration kRemembered = 2s;  // to twice that long

  // A timer ran that much after it was due. `now` does not fall.
  void felt(Duration late, Instant now) {
    turn(now);
    newer_ = std::max(newer_, std::min(late, kMost));
  }
  // The most that was felt lately.
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
