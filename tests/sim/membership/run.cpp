#include "tests/sim/membership/run.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include "tests/sim/abort_note.h"

namespace dtrain::sim::membership {
namespace {

constexpr std::uint64_t kCompareEvery = 16;  // of the seeds run twice; the first one always is
constexpr std::uint32_t kCompareMost =
    1000;  // members: larger clusters only take the time of smaller ones' code
constexpr std::uint32_t kNodes = 20;

Result<RunOutcome> run(const RunRequest& request) {
  if (request.nodes > MembershipWorld::kMostNodes)
    return fail(ErrorCode::invalid,
                "could not run " + std::to_string(request.nodes) + " nodes: world membership takes up to " +
                    std::to_string(MembershipWorld::kMostNodes),
                "ask for fewer");
  const auto faults = FaultSet::parse(request.faults);
  if (!faults) return tl::unexpected(faults.error());
  RunOptions options;
  options.nodes = request.nodes == 0 ? kNodes : static_cast<std::uint32_t>(request.nodes);
  options.duration = request.duration;
  options.faults = *faults;
  options.broken_rule = request.broken_rule;
  options.trace = request.trace;
  const Report report = run_seeds(options, request.seeds);
  const double rate = report.cpu_seconds > 0 ? static_cast<double>(report.events) / report.cpu_seconds : 0;
  nlohmann::json line = {{"world", "membership"},
                         {"nodes", options.nodes},
                         {"seeds", report.seeds},
                         {"virtual_seconds", report.virtual_seconds},
                         {"events", report.events},
                         {"events_per_second", rate},
                         {"real_seconds", report.real_seconds},
                         {"cpu_seconds", report.cpu_seconds},
                         {"compared", report.compared}};
  line.update(report.figures.json());
  RunOutcome outcome;
  outcome.violation = report.violation;
  outcome.failed_seed = report.failed_seed;
  if (report.violation) {
    outcome.replay = replay_command(options, report.failed_seed);
    line["violation"] = {{"seed", report.failed_seed},
                         {"invariant", report.violation->invariant},
                         {"at", seconds_text(report.violation->at)},
                         {"what", report.violation->what}};
  }
  outcome.figures = line.dump();
  char text[200];
  std::snprintf(text, sizeof text,
                "membership: %llu seeds of %u members held, %.0f virtual seconds, %llu events (%.0f/s), %llu "
                "false positives",
                static_cast<unsigned long long>(report.seeds), options.nodes, report.virtual_seconds,
                static_cast<unsigned long long>(report.events), rate,
                static_cast<unsigned long long>(report.figures.false_positives));
  outcome.text = text;
  return outcome;
}

std::vector<std::string> checkers() {
  return MembershipWorld(RunOptions{}).checker_names();
}

}  // namespace

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  Report report;
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  for (std::uint64_t seed = seeds.first;; ++seed) {
    RunOptions options = base;
    options.seed = seed;
    const AbortNote note(replay_command(options, seed));
    const RunResult result = MembershipWorld(options).run();
    report.virtual_seconds += std::chrono::duration<double>(result.covered).count();
    report.events += result.events;
    report.figures.join_run(result.figures);
    report.violation = result.violation;
    if (!report.violation && !options.trace && options.nodes <= kCompareMost &&
        (seed - seeds.first) % kCompareEvery == 0) {
      ++report.compared;
      const RunResult again = MembershipWorld(options).run();
      report.events += again.events;
      if (again.trace_hash != result.trace_hash)
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
  return report;
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  std::string out =
      "dtrain-sim --world membership --nodes " + std::to_string(options.nodes) + " --seeds " +
      std::to_string(seed) + ".." + std::to_string(seed) + " --duration " +
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.duration).count()) +
      "ms --faults " + options.faults.text();
  if (!options.broken_rule.empty()) out += " --break " + options.broken_rule;
  return out;
}

const World& membership_world() {
  static const World world{"membership", "up to ten thousand agents, the network between them, and faults",
                           membership_rules, FaultSet::all_names, checkers, run};
  return world;
}

}  // namespace dtrain::sim::membership
