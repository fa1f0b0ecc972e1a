// Fault upgrade: at the beginning the programs of all hosts know only the first version of the ledger. An operator
// gives each host the newer program, in any order and at any time, and some of them the older one again for a while,
// even after the ledger was raised. All are new once faults are over. Other faults happen in between.
#pragma once

#include "common/base/rng.h"
#include "common/base/time.h"

namespace dtrain::sim {

class ClusterWorld;

class Upgrades {
 public:
  Upgrades(ClusterWorld& world, Rng rng, Instant until);
  void begin();
  // Faults are over: hosts with the old program are upgraded now.
  void finish();

 private:
  void give(std::size_t host, bool newer);
  void roll_back_later(std::size_t host);
  Duration upto(Duration most);

  ClusterWorld& world_;
  Rng rng_;
  Instant until_;
};

}  // namespace dtrain::sim
