// One kind of simulated world as dtrain-sim offers it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/sim/seed_range.h"
#include "tests/sim/violation.h"

namespace dtrain::sim {

// The command line, parsed as far as all worlds share it.
struct RunRequest {
  std::uint64_t nodes = 0;  // 0: what the world takes by itself
  SeedRange seeds;
  Duration duration = 300s;
  std::string faults = "all";
  std::string broken_rule;  // known to the world, or ""
  bool trace = false;
};

struct RunOutcome {
  std::string figures;  // one line of JSON
  std::string text;     // the same for people
  std::optional<Violation> violation;
  std::uint64_t failed_seed = 0;
  std::string replay;  // the command that runs the failed seed again
};

struct World {
  std::string_view name, summary;
  std::vector<std::string> (*rules)();           // that --break knows
  std::vector<std::string> (*faults)();          // that --faults knows
  std::vector<std::string> (*checkers)();        // the invariants that they watch
  Result<RunOutcome> (*run)(const RunRequest&);  // an error: the request makes no sense here
};

}  // namespace dtrain::sim
