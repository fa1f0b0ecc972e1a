// World membership as dtrain-sim offers it: a range of seeds, with the sum of their figures; some seeds run twice.
#pragma once

#include "tests/sim/membership/membership_world.h"
#include "tests/sim/seed_runs.h"
#include "tests/sim/world.h"

namespace dtrain::sim::membership {

struct Report : SeedReport {
  std::uint64_t events = 0;
  Figures figures;
};

// Stops at the first seed with a violation. `base.seed` is not used.
Report run_seeds(const RunOptions& base, SeedRange seeds);
std::string replay_command(const RunOptions& options, std::uint64_t seed);

const World& membership_world();

}  // namespace dtrain::sim::membership
