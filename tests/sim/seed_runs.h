// Runs a range of seeds through a world: the part that all worlds share.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tests/sim/abort_note.h"
#include "tests/sim/seed_range.h"
#include "tests/sim/violation.h"
#include "tests/sim/world.h"

namespace dtrain::sim {

constexpr std::uint64_t kCompareEvery = 16;  // of the seeds run twice; the first one always is

// The beginning of every world's report; the sums over its runs follow.
struct SeedReport {
  std::uint64_t seeds = 0;  // without a violation
  std::uint64_t failed_seed = 0, compared = 0;
  // Over all that happened: for one seed its own hash, for several a hash over theirs in order.
  std::uint64_t trace_hash = 0;
  std::optional<Violation> violation;
  double virtual_seconds = 0, real_seconds = 0, cpu_seconds = 0;
};

// Stops at the first broken seed. run(seed) is one run: {violation, trace_hash, covered, ...}; add(result)
// takes down its figures. The first seed and then each `compare_every`-th (0: none) runs twice, and must take
// the same course. replay(seed) is the command that runs a seed again.
template <class Run, class Replay, class Add>
void run_each_seed(SeedReport& report, SeedRange seeds, std::uint64_t compare_every, Run run, Replay replay, Add add) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  for (std::uint64_t seed = seeds.first;; ++seed) {
    const AbortNote note(replay(seed));
    const auto result = run(seed);
    report.virtual_seconds += std::chrono::duration<double>(result.covered).count();
    add(result);
    report.trace_hash = seed == seeds.first ? result.trace_hash : (report.trace_hash * 0x9e3779b97f4a7c15ull) ^ result.trace_hash;
    report.violation = result.violation;
    if (!report.violation && compare_every != 0 && (seed - seeds.first) % compare_every == 0) {
      ++report.compared;
      if (run(seed).trace_hash != result.trace_hash)
        report.violation = Violation{"deterministic", "a second run of the same seed took another course", Instant{} + result.covered};
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

// The same for a world whose runs share nothing; add(report, result). `base.seed` is not used.
template <class World, class Report, class Options, class Add>
Report run_worlds(const Options& base, SeedRange seeds, Add add) {
  Report report;
  Options options = base;
  run_each_seed(
      report, seeds, base.trace ? 0 : kCompareEvery,
      [&](std::uint64_t seed) {
        options.seed = seed;
        return World(options).run();
      },
      [&](std::uint64_t seed) { return replay_command(base, seed); }, [&](const auto& result) { add(report, result); });
  return report;
}

// A world's options as the command line has them; without --nodes the world's own number. An error: the
// request makes no sense for this world.
template <class Options>
Result<Options> options_of(const RunRequest& request, std::string_view world, std::uint64_t most_nodes) {
  if (request.nodes > most_nodes)
    return fail(ErrorCode::invalid,
                "could not run " + std::to_string(request.nodes) + " nodes: world " + std::string(world) + " takes up to " +
                    std::to_string(most_nodes),
                "ask for fewer");
  Options options;
  auto faults = decltype(options.faults)::parse(request.faults);
  if (!faults) return tl::unexpected(faults.error());
  if (request.nodes != 0) options.nodes = static_cast<decltype(options.nodes)>(request.nodes);
  options.duration = request.duration;
  options.faults = *faults;
  options.broken_rule = request.broken_rule;
  options.trace = request.trace;
  return options;
}

// What every world's line of JSON has; rates are of CPU time.
nlohmann::json line_of(const SeedReport& report, std::string_view world, std::uint64_t nodes);
// For tests: which seed broke what; "" when all held.
std::string broken_text(const SeedReport& report);
// Exactly this seed with these options. `faults`: as --faults takes them.
std::string replay_command(std::string_view world, std::uint64_t nodes, std::uint64_t seed, Duration duration, const std::string& faults,
                           const std::string& broken_rule);
// The outcome of a report; `line`: its figures, to which the hash and a violation are added. `text` gets the hash of a
// single seed. `replay`: of failed_seed.
RunOutcome outcome_of(const SeedReport& report, nlohmann::json line, std::string text, std::string replay);

}  // namespace dtrain::sim
