#include "tests/sim/run_seeds.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/sim/abort_note.h"

namespace dtrain::sim {
namespace {

constexpr std::uint64_t kCompareEvery = 16;   // of the seeds run twice; the first one always is

}  // namespace

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  Report report;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = seeds.first;; ++seed) {
    RunOptions options = base;
    options.seed = seed;
    const AbortNote note(replay_command(options, 1, seed));
    const RunResult result = ClusterWorld(options).run();
    report.virtual_seconds += std::chrono::duration<double>(result.covered).count();
    report.events += result.events;
    report.jobs += result.jobs;
    report.attempts += result.attempts;
    report.recoveries += result.recoveries;
    report.lives += result.lives;
    report.commits += result.commits;
    report.violation = result.violation;
    if (!report.violation && !options.trace && (seed - seeds.first) % kCompareEvery == 0) {
      ++report.compared;
      const RunResult again = ClusterWorld(options).run();
      if (again.trace_hash != result.trace_hash)
        report.violation = Violation{"deterministic", "a second run of the same seed took another course", Instant{} + result.covered};
    }
    if (report.violation) {
      report.failed_seed = seed;
      break;
    }
    ++report.seeds;
    if (seed == seeds.last) break;
  }
  report.real_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

std::string replay_command(const RunOptions& options, std::uint64_t nodes, std::uint64_t seed) {
  std::string out = "dtrain-sim --world cluster --nodes " + std::to_string(nodes) + " --seeds " + std::to_string(seed) + ".." +
                    std::to_string(seed) + " --duration " +
                    std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.duration).count()) + "ms --faults " +
                    options.faults.text();
  if (!options.broken_rule.empty()) out += " --break " + options.broken_rule;
  return out;
}

namespace {

Result<RunOutcome> run(const RunRequest& request) {
  if (request.nodes > 1)
    return fail(ErrorCode::invalid, "could not run " + std::to_string(request.nodes) + " nodes: this version of world cluster has one",
                "leave --nodes out");
  const auto faults = FaultSet::parse(request.faults);
  if (!faults) return tl::unexpected(faults.error());
  RunOptions options;
  options.duration = request.duration;
  options.faults = *faults;
  options.broken_rule = request.broken_rule;
  options.trace = request.trace;
  const Report report = run_seeds(options, request.seeds);
  const double rate = report.real_seconds > 0 ? static_cast<double>(report.events) / report.real_seconds : 0;
  nlohmann::json line = {{"world", "cluster"},
                         {"nodes", 1},
                         {"seeds", report.seeds},
                         {"virtual_seconds", report.virtual_seconds},
                         {"events", report.events},
                         {"events_per_second", rate},
                         {"real_seconds", report.real_seconds},
                         {"compared", report.compared},
                         {"jobs", report.jobs},
                         {"attempts", report.attempts},
                         {"recoveries", report.recoveries},
                         {"lives", report.lives},
                         {"commits", report.commits}};
  RunOutcome outcome;
  outcome.violation = report.violation;
  outcome.failed_seed = report.failed_seed;
  if (report.violation) {
    outcome.replay = replay_command(options, 1, report.failed_seed);
    line["violation"] = {{"seed", report.failed_seed},
                         {"invariant", report.violation->invariant},
                         {"at", seconds_text(report.violation->at)},
                         {"what", report.violation->what}};
  }
  outcome.figures = line.dump();
  char text[200];
  std::snprintf(text, sizeof text,
                "cluster: %llu seeds held, %.0f virtual seconds, %llu events (%.0f/s), %llu jobs, %llu attempts, %llu lives of the agent",
                static_cast<unsigned long long>(report.seeds), report.virtual_seconds, static_cast<unsigned long long>(report.events), rate,
                static_cast<unsigned long long>(report.jobs), static_cast<unsigned long long>(report.attempts),
                static_cast<unsigned long long>(report.lives));
  outcome.text = text;
  return outcome;
}

std::vector<std::string> checkers() { return ClusterWorld(RunOptions{}).checker_names(); }

}  // namespace

const World& cluster_world() {
  static const World world{"cluster", "one host, its agent, tasks, disk and users", cluster_rules, FaultSet::all_names, checkers, run};
  return world;
}

}  // namespace dtrain::sim
