// The fate of a message between two machines: lost, late, twice, or cut off. Every direction of every pair is a link
// of its own; cuts are counted, so that faults may overlap.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/rng.h"
#include "common/base/time.h"

namespace dtrain::sim::council {

inline constexpr std::uint32_t kMostMachines = 16;

using LinkList = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // from, to
// Both ways between those whose bit is set in `away` and the others.
inline LinkList links_across(std::uint64_t away, std::uint32_t machines) {
  LinkList links;
  for (std::uint32_t a = 0; a < machines; ++a)
    for (std::uint32_t b = 0; b < machines; ++b)
      if ((away >> a & 1) != (away >> b & 1)) links.emplace_back(a, b);
  return links;
}
// All of one machine, both ways.
inline LinkList links_of(std::uint32_t one, std::uint32_t machines) { return links_across(std::uint64_t{1} << one, machines); }

class Links {
 public:
  explicit Links(Rng rng) : rng_(rng) {}

  // Arrival times, counted from now; two: a copy arrives too; none: lost.
  struct Fate {
    std::optional<Duration> first, second;
  };
  Fate fate(std::uint32_t from, std::uint32_t to) {
    Fate fate;
    if (blocked(from, to)) return fate;
    if (loss_ == 0 || quiet_ || !rng_.chance(loss_, 1000)) fate.first = latency();
    if (duplicates_ != 0 && rng_.chance(duplicates_, 1000)) fate.second = latency() + upto(kLateCopy);
    return fate;
  }
  Duration latency() {
    Duration takes = base_ + upto(base_);
    if (delays_ && !quiet_) {
      if (rng_.chance(1, 8)) takes += upto(base_ * 16 + 40ms);
      if (rng_.chance(1, 256)) takes += upto(kLateCopy);
    }
    return takes;
  }

  void set_base(Duration base) { base_ = base; }
  void set_loss(std::uint32_t per_mille) { loss_ = per_mille; }
  void set_duplicates(std::uint32_t per_mille) { duplicates_ = per_mille; }
  void set_delays(bool on) { delays_ = on; }
  void cut(std::uint32_t from, std::uint32_t to, bool on) {
    std::uint8_t& count = cuts_[from][to];
    CHECK(on || count > 0);
    count = static_cast<std::uint8_t>(on ? count + 1 : count - 1);
  }
  bool blocked(std::uint32_t from, std::uint32_t to) const { return cuts_[from][to] != 0; }
  bool both_ways(std::uint32_t a, std::uint32_t b) const { return !blocked(a, b) && !blocked(b, a); }
  void set_quiet(bool on) { quiet_ = on; }  // for the time being nothing is lost or late
  void heal() {
    loss_ = duplicates_ = 0;
    delays_ = false;
  }

 private:
  static constexpr Duration kLateCopy = 3s;
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count()) + 1))); }

  Rng rng_;
  Duration base_ = 500us;
  std::uint32_t loss_ = 0, duplicates_ = 0;  // of a thousand
  bool delays_ = false, quiet_ = false;
  std::array<std::array<std::uint8_t, kMostMachines>, kMostMachines> cuts_{};
};

}  // namespace dtrain::sim::council
