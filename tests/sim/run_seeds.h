// Runs a range of seeds of world cluster, compares some of them with a second run of the same seed, and reports the result.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/cluster_world.h"
#include "tests/sim/seed_runs.h"
#include "tests/sim/world.h"

namespace dtrain::sim {

struct Report : SeedReport {
  std::uint64_t events = 0, jobs = 0, attempts = 0, recoveries = 0, lives = 0, commits = 0;
};

// Stops at the first seed with a violation. `base.seed` is not used.
Report run_seeds(const RunOptions& base, SeedRange seeds);

// The command that runs exactly the failed seed again.
std::string replay_command(const RunOptions& options, std::uint64_t seed);

const World& cluster_world();

}  // namespace dtrain::sim
