// World membership as dtrain-sim offers it: a range of seeds, their figures added up, a share of them run
// twice.
#pragma once

#include "tests/sim/membership/membership_world.h"
#include "tests/sim/world.h"

namespace dtrain::sim::membership {

struct Report {
  std::uint64_t seeds = 0, failed_seed = 0, compared = 0, events = 0;
  std::optional<Violation> violation;
  double virtual_seconds = 0, real_seconds = 0, cpu_seconds = 0;  // events per second: of CPU time
  Figures figures;
};

// Stops at the first broken seed. `base.seed` is not used.
Report run_seeds(const RunOptions& base, SeedRange seeds);
std::string replay_command(const RunOptions& options, std::uint64_t seed);

const World& membership_world();

}  // namespace dtrain::sim::membership
