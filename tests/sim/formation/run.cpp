#include "tests/sim/formation/run.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace dtrain::sim::formation {
namespace {

Result<RunOutcome> run(const RunRequest& request) {
  const auto options = options_of<RunOptions>(request, "formation", FormationWorld::kMostNodes);
  if (!options) return tl::unexpected(options.error());
  const Report report = run_seeds(*options, request.seeds);
  nlohmann::json line = line_of(report, "formation", options->nodes);
  line.update(report.figures.json());
  char text[240];
  std::snprintf(text, sizeof text,
                "formation: %llu seeds of %u founders held, %.0f virtual seconds (%.0f per second), %llu "
                "proposals, %llu "
                "withdrawn promises, %llu logs begun, %llu given up, %llu machines admitted",
                static_cast<unsigned long long>(report.seeds), options->nodes, report.virtual_seconds,
                line["virtual_seconds_per_second"].get<double>(), static_cast<unsigned long long>(report.figures.proposed),
                static_cast<unsigned long long>(report.figures.withdrawn), static_cast<unsigned long long>(report.figures.began),
                static_cast<unsigned long long>(report.figures.abandoned), static_cast<unsigned long long>(report.figures.admitted));
  return outcome_of(report, std::move(line), text, replay_command(*options, report.failed_seed));
}

std::vector<std::string> checkers() { return FormationWorld(RunOptions{}).checker_names(); }

}  // namespace

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  return run_worlds<FormationWorld, Report>(base, seeds, [](Report& report, const RunResult& run) { report.figures.join(run.figures); });
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return sim::replay_command("formation", options.nodes, seed, options.duration, options.faults.text(), options.broken_rule);
}

const World& formation_world() {
  static const World world{"formation",        "founders that shall begin one cluster, their disks, an operator, and faults",
                           core::Rules::names, FaultSet::all_names,
                           checkers,           run};
  return world;
}

}  // namespace dtrain::sim::formation
