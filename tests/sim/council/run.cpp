#include "tests/sim/council/run.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/raft/rules.h"

namespace dtrain::sim::council {
namespace {

Result<RunOutcome> run(const RunRequest& request) {
  const auto options = options_of<RunOptions>(request, "council", CouncilWorld::kMostNodes);
  if (!options) return tl::unexpected(options.error());
  const Report report = run_seeds(*options, request.seeds);
  nlohmann::json line = line_of(report, "council", options->nodes);
  line.update(report.figures.json());
  char text[240];
  std::snprintf(text, sizeof text,
                "council: %llu seeds of %u nodes held, %.0f virtual seconds (%.0f per second), %llu "
                "messages, %llu leaders, %llu "
                "entries applied, %llu writes and %llu reads answered",
                static_cast<unsigned long long>(report.seeds), options->nodes, report.virtual_seconds,
                line["virtual_seconds_per_second"].get<double>(), static_cast<unsigned long long>(report.figures.messages),
                static_cast<unsigned long long>(report.figures.leaders), static_cast<unsigned long long>(report.figures.committed),
                static_cast<unsigned long long>(report.figures.writes), static_cast<unsigned long long>(report.figures.reads));
  return outcome_of(report, std::move(line), text, replay_command(*options, report.failed_seed));
}

std::vector<std::string> checkers() { return CouncilWorld(RunOptions{}).checker_names(); }

}  // namespace

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  return run_worlds<CouncilWorld, Report>(base, seeds, [](Report& report, const RunResult& run) { report.figures.join(run.figures); });
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return sim::replay_command("council", options.nodes, seed, options.duration, options.faults.text(), options.broken_rule);
}

const World& council_world() {
  static const World world{"council",          "1 to 5 voters of one log, their disks, clients, an operator, and faults",
                           raft::Rules::names, FaultSet::all_names,
                           checkers,           run};
  return world;
}

}  // namespace dtrain::sim::council
