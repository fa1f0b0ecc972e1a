#include "tests/sim/council/run.h"

#include <chrono>
#include <cstdio>
#include <ctime>

#include "tests/sim/abort_note.h"

namespace dtrain::sim::council {
namespace {

constexpr std::uint64_t kCompareEvery = 16;  // of the seeds run twice; the first one always is
constexpr std::uint32_t kNodes = 5;

Result<RunOutcome> run(const RunRequest& request) {
  if (request.nodes > CouncilWorld::kMostNodes)
    return fail(ErrorCode::invalid,
                "could not run " + std::to_string(request.nodes) + " nodes: world council takes up to " +
                    std::to_string(CouncilWorld::kMostNodes),
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
  const double cpu = report.cpu_seconds > 0 ? report.cpu_seconds : 1e-9;
  nlohmann::json line = {{"world", "council"},
                         {"nodes", options.nodes},
                         {"seeds", report.seeds},
                         {"virtual_seconds", report.virtual_seconds},
                         {"virtual_seconds_per_second", report.virtual_seconds / cpu},
                         {"seeds_per_second", static_cast<double>(report.seeds) / cpu},
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
  char text[240];
  std::snprintf(text, sizeof text,
                "council: %llu seeds of %u nodes held, %.0f virtual seconds (%.0f per second), %llu "
                "messages, %llu leaders, %llu "
                "entries applied, %llu writes and %llu reads answered",
                static_cast<unsigned long long>(report.seeds), options.nodes, report.virtual_seconds,
                report.virtual_seconds / cpu, static_cast<unsigned long long>(report.figures.messages),
                static_cast<unsigned long long>(report.figures.leaders),
                static_cast<unsigned long long>(report.figures.committed),
                static_cast<unsigned long long>(report.figures.writes),
                static_cast<unsigned long long>(report.figures.reads));
  outcome.text = text;
  return outcome;
}

std::vector<std::string> rules() {
  return raft::breakable_rules();
}

std::vector<std::string> checkers() {
  return CouncilWorld(RunOptions{}).checker_names();
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
    const RunResult result = CouncilWorld(options).run();
    report.virtual_seconds += std::chrono::duration<double>(result.covered).count();
    report.figures.join(result.figures);
    report.violation = result.violation;
    if (!report.violation && !options.trace && (seed - seeds.first) % kCompareEvery == 0) {
      ++report.compared;
      const RunResult again = CouncilWorld(options).run();
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
      "dtrain-sim --world council --nodes " + std::to_string(options.nodes) + " --seeds " +
      std::to_string(seed) + ".." + std::to_string(seed) + " --duration " +
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.duration).count()) +
      "ms --faults " + options.faults.text();
  if (!options.broken_rule.empty()) out += " --break " + options.broken_rule;
  return out;
}

const World& council_world() {
  static const World world{
      "council", "1 to 5 voters of one log, their disks, clients, an operator, and faults",
      rules,     FaultSet::all_names,
      checkers,  run};
  return world;
}

}  // namespace dtrain::sim::council
