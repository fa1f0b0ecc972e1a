// How well this node itself keeps up: Lifeguard's Local Health Multiplier (arXiv 1707.00788, section IV-A). A node
// that misses nacks, is accused or was stopped multiplies its deadlines before it accuses others.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dtrain::gossip {

class LocalHealth {
 public:
  // Scores 0 (healthy) .. max - 1. max >= 1; max = 1: always healthy.
  explicit LocalHealth(std::uint32_t max) : worst_(max > 0 ? max - 1 : 0) {}

  void worse(std::uint32_t by = 1) { score_ += std::min(by, worst_ - score_); }
  void better() { score_ -= score_ > 0 ? 1 : 0; }

  std::uint32_t score() const { return score_; }
  bool healthy() const { return score_ == 0; }
  std::uint32_t factor() const { return score_ + 1; }  // multiplies probe deadlines

 private:
  std::uint32_t worst_;
  std::uint32_t score_ = 0;
};

}  // namespace dtrain::gossip
