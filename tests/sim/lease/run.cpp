#include "tests/sim/lease/run.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/cluster/lease_rules.h"
#include "common/task/lease_rules.h"

namespace dtrain::sim::lease {
namespace {

Result<RunOutcome> run(const RunRequest& request) {
  const auto options = options_of<RunOptions>(request, "lease", LeaseWorld::kMostNodes);
  if (!options) return tl::unexpected(options.error());
  const Report report = run_seeds(*options, request.seeds);
  nlohmann::json line = line_of(report, "lease", options->nodes);
  line.update(report.figures.json());
  char text[320];
  std::snprintf(text, sizeof text,
                "lease: %llu seeds of %u hosts held, %.0f virtual seconds (%.0f per second), %llu grants, %llu "
                "placements (%llu by lease, %llu by grace, %llu by exit, %llu by boot), %llu freezes, %llu killed unfrozen",
                static_cast<unsigned long long>(report.seeds), options->nodes, report.virtual_seconds,
                line["virtual_seconds_per_second"].get<double>(), static_cast<unsigned long long>(report.figures.granted),
                static_cast<unsigned long long>(report.figures.placed), static_cast<unsigned long long>(report.figures.by_lease),
                static_cast<unsigned long long>(report.figures.by_grace), static_cast<unsigned long long>(report.figures.by_exit),
                static_cast<unsigned long long>(report.figures.by_boot), static_cast<unsigned long long>(report.figures.freezes),
                static_cast<unsigned long long>(report.figures.unfenced));
  return outcome_of(report, std::move(line), text, replay_command(*options, report.failed_seed));
}

std::vector<std::string> checkers() { return LeaseWorld(RunOptions{}).checker_names(); }

}  // namespace

std::vector<std::string> rules() {
  std::vector<std::string> all = task::lease::Rules::names();
  for (std::string& name : cluster::lease::Rules::names()) all.push_back(std::move(name));
  return all;
}

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  return run_worlds<LeaseWorld, Report>(base, seeds, [](Report& report, const RunResult& run) { report.figures.join(run.figures); });
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return sim::replay_command("lease", options.nodes, seed, options.duration, options.faults.text(), options.broken_rule);
}

const World& lease_world() {
  static const World world{"lease",  "exclusive tasks on hosts that are cut off, stopped and lost; who grants their leases",
                           rules,    FaultSet::all_names,
                           checkers, run};
  return world;
}

}  // namespace dtrain::sim::lease
