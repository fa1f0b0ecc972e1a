// Lets faults happen at random times until a given instant, then heals everything. With all faults permitted each run
// draws a subset of them; named ones all occur.
#pragma once

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/lease/lease_world.h"
#include "tests/sim/undo_list.h"

namespace dtrain::sim::lease {

class Chaos {
 public:
  Chaos(LeaseWorld& world, const FaultSet& permitted, Rng rng, Instant until);
  void begin();
  void heal();

 private:
  void next(Fault fault);
  void strike(Fault fault);
  void cut_for(const council::LinkList& links, const char* what, Duration away);
  void slow_disks(Duration lasts);
  void flap(Slot slot, std::uint32_t more);
  void one_way();
  void kill_agent(Slot slot);
  void pause_shim(Slot slot);
  void pause_coordinator();
  void depose();
  void for_a_while(Duration longest, std::function<void()> undo);
  Slot machine() { return static_cast<Slot>(rng_.below(world_.machines())); }
  Slot a_host() { return kCandidates + static_cast<Slot>(rng_.below(world_.machines() - kCandidates)); }
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }
  // Short, about a lease, or long.
  Duration a_while() {
    constexpr Duration kLengths[] = {500ms, 6s, 14s, 25s};
    return upto(kLengths[rng_.below(std::size(kLengths))]);
  }

  LeaseWorld& world_;
  FaultSet active_;
  Rng rng_;
  Instant until_;
  std::array<Duration, kFaults> mean_{};
  UndoList undo_;
  Instant deposed_until_{};
  bool over_ = false;
};

}  // namespace dtrain::sim::lease
