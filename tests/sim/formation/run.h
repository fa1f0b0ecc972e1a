// World formation as dtrain-sim offers it: a range of seeds, with the sum of their figures; some seeds run twice.
#pragma once

#include "tests/sim/formation/formation_world.h"
#include "tests/sim/seed_runs.h"
#include "tests/sim/world.h"

namespace dtrain::sim::formation {

struct Report : SeedReport {
  Figures figures;
};

// Stops at the first seed with a violation. `base.seed` is not used.
Report run_seeds(const RunOptions& base, SeedRange seeds);
std::string replay_command(const RunOptions& options, std::uint64_t seed);

const World& formation_world();

}  // namespace dtrain::sim::formation
