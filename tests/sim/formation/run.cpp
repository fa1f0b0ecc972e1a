#include "tests/sim/formation/run.h"

#include <cstdio>

namespace dtrain::sim::formation {
namespace {

constexpr std::uint64_t kCompareEvery = 16;  // of the seeds run twice; the first one always is
constexpr std::uint32_t kNodes = 3;

Result<RunOutcome> run(const RunRequest& request) {
  if (request.nodes > FormationWorld::kMostNodes)
    return fail(ErrorCode::invalid,
                "could not run " + std::to_string(request.nodes) + " nodes: world formation takes up to " +
                    std::to_string(FormationWorld::kMostNodes),
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
  nlohmann::json line = {{"world", "formation"},
                         {"nodes", options.nodes},
                         {"seeds", report.seeds},
                         {"virtual_seconds", report.virtual_seconds},
                         {"virtual_seconds_per_second", report.virtual_seconds / cpu},
                         {"seeds_per_second", static_cast<double>(report.seeds) / cpu},
                         {"real_seconds", report.real_seconds},
                         {"cpu_seconds", report.cpu_seconds},
                         {"compared", report.compared}};
  line.update(report.figures.json());
  char text[240];
  std::snprintf(text, sizeof text,
                "formation: %llu seeds of %u founders held, %.0f virtual seconds (%.0f per second), %llu "
                "proposals, %llu "
                "withdrawn promises, %llu logs begun, %llu given up, %llu machines admitted",
                static_cast<unsigned long long>(report.seeds), options.nodes, report.virtual_seconds,
                report.virtual_seconds / cpu, static_cast<unsigned long long>(report.figures.proposed),
                static_cast<unsigned long long>(report.figures.withdrawn),
                static_cast<unsigned long long>(report.figures.began),
                static_cast<unsigned long long>(report.figures.abandoned),
                static_cast<unsigned long long>(report.figures.admitted));
  return outcome_of(report, std::move(line), text, replay_command(options, report.failed_seed));
}

std::vector<std::string> checkers() {
  return FormationWorld(RunOptions{}).checker_names();
}

}  // namespace

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  Report report;
  RunOptions options = base;
  const auto run = [&](std::uint64_t seed) {
    options.seed = seed;
    return FormationWorld(options).run();
  };
  const auto replay = [&](std::uint64_t seed) { return replay_command(base, seed); };
  run_each_seed(report, seeds, base.trace ? 0 : kCompareEvery, run, replay,
                [&](const RunResult& result) { report.figures.join(result.figures); });
  return report;
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return sim::replay_command("formation", options.nodes, seed, options.duration, options.faults.text(),
                             options.broken_rule);
}

const World& formation_world() {
  static const World world{
      "formation",        "founders that shall begin one cluster, their disks, an operator, and faults",
      core::Rules::names, FaultSet::all_names,
      checkers,           run};
  return world;
}

}  // namespace dtrain::sim::formation
