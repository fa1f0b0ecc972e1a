// Which members know one thing and which do not yet: from its beginning until all fit members know it.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/sim/membership/checker.h"

namespace dtrain::sim::membership {

class Spread {
 public:
  // All members of the cluster that are fit now must learn of it, except `except`.
  Spread(const WorldView& world, std::uint32_t cluster, std::uint32_t except) : begin_(world.now()), waiting_(world.slots()) {
    for (std::uint32_t slot = 0; slot < world.slots(); ++slot) {
      if (slot == except || world.truth(slot).cluster != cluster || !world.fit(slot)) continue;
      waiting_[slot] = true;
      ++left_;
    }
    asked_ = left_;
  }
  bool hear(std::uint32_t slot, Instant now) {  // true: it was news
    if (!excuse(slot)) return false;
    if (first_ == kNever) first_ = now;
    ++heard_;
    return true;
  }
  bool excuse(std::uint32_t slot) {  // it need not know
    if (slot >= waiting_.size() || !waiting_[slot]) return false;
    waiting_[slot] = false;
    --left_;
    return true;
  }
  bool waits_for(std::uint32_t slot) const { return slot < waiting_.size() && waiting_[slot]; }
  bool done() const { return left_ == 0; }
  bool heard_of() const { return heard_ > 0; }
  std::uint32_t asked() const { return asked_; }
  std::uint32_t left() const { return left_; }
  std::uint32_t someone_left() const {
    for (std::uint32_t slot = 0; slot < waiting_.size(); ++slot)
      if (waiting_[slot]) return slot;
    return 0;
  }
  Instant begin() const { return begin_; }
  Instant first() const { return first_; }  // kNever: nobody has heard of it

 private:
  Instant begin_, first_ = kNever;
  std::vector<bool> waiting_;
  std::uint32_t asked_ = 0, left_ = 0, heard_ = 0;
};

}  // namespace dtrain::sim::membership
