// Starts the founders, makes faults happen to them at random times until a given instant, then heals everything. With
// all faults permitted each run draws a subset of them; named ones all occur.
#pragma once

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/formation/formation_world.h"
#include "tests/sim/undo_list.h"

namespace dtrain::sim::formation {

class Chaos {
 public:
  Chaos(FormationWorld& world, const FaultSet& permitted, Rng rng, Instant until);
  void begin();
  void heal();

 private:
  void next(Fault fault);
  void strike(Fault fault);
  void partition();
  void isolate();
  void one_way();
  void come_back(Slot slot, Duration after);
  void cut_for(std::vector<std::pair<Slot, Slot>> links, Duration longest);
  Slot someone() { return static_cast<Slot>(rng_.below(world_.slots())); }
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }

  FormationWorld& world_;
  FaultSet active_;
  Rng rng_;
  Instant until_;
  std::array<Duration, kFaults> mean_{};
  UndoList undo_;
  bool over_ = false;
};

}  // namespace dtrain::sim::formation
