// A range of seeds through a world: what all worlds do with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tests/sim/abort_note.h"
#include "tests/sim/seed_range.h"
#include "tests/sim/violation.h"
#include "tests/sim/world.h"

namespace dtrain::sim {

// A world's report begins with this; what it adds up of each run comes behind.
struct SeedReport {
  std::uint64_t seeds = 0;  // that held
  std::uint64_t failed_seed = 0, compared = 0;
  std::optional<Violation> violation;
  double virtual_seconds = 0, real_seconds = 0, cpu_seconds = 0;
};

// Stops at the first broken seed. run(seed) is one run: {violation, trace_hash, covered, ...}; add(result)
// takes down its figures. The first seed and then each `compare_every`-th (0: none) runs twice, and must take
// the same course. replay(seed) is the command that runs a seed again.
template <class Run, class Replay, class Add>
void run_each_seed(SeedReport& report, SeedRange seeds, std::uint64_t compare_every, Run run, Replay replay,
                   Add add) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  for (std::uint64_t seed = seeds.first;; ++seed) {
    const AbortNote note(replay(seed));
    const auto result = run(seed);
    report.virtual_seconds += std::chrono::duration<double>(result.covered).count();
    add(result);
    report.violation = result.violation;
    if (!report.violation && compare_every != 0 && (seed - seeds.first) % compare_every == 0) {
      ++report.compared;
      if (run(seed).trace_hash != result.trace_hash)
        report.violation = Violation{"deterministic", "a second run of the same seed took another course",
                                     Instant{} + result.covered};
    }
    if (report.violation) {
      report.failed_seed = seed;
      break;
    }
    ++report.seeds;
    if (seed == seeds.last) break;
  }
  report.cpu_seconds = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  report.real_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Exactly this seed with these options. `faults`: as --faults takes them.
inline std::string replay_command(std::string_view world, std::uint64_t nodes, std::uint64_t seed,
                                  Duration duration, const std::string& faults,
                                  const std::string& broken_rule) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  std::string out = "dtrain-sim --world " + std::string(world) + " --nodes " + std::to_string(nodes) +
                    " --seeds " + std::to_string(seed) + ".." + std::to_string(seed) + " --duration " +
                    std::to_string(ms) + "ms --faults " + faults;
  if (!broken_rule.empty()) out += " --break " + broken_rule;
  return out;
}

// The outcome of a report; `line`: its figures, to which a violation is added. `replay`: of failed_seed.
inline RunOutcome outcome_of(const SeedReport& report, nlohmann::json line, std::string text,
                             std::string replay) {
  RunOutcome outcome;
  outcome.text = std::move(text);
  outcome.violation = report.violation;
  outcome.failed_seed = report.failed_seed;
  if (report.violation) {
    outcome.replay = std::move(replay);
    line["violation"] = {{"seed", report.failed_seed},
                         {"invariant", report.violation->invariant},
                         {"at", seconds_text(report.violation->at)},
                         {"what", report.violation->what}};
  }
  outcome.figures = line.dump();
  return outcome;
}

}  // namespace dtrain::sim
