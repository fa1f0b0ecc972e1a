#include "tests/sim/run_seeds.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace dtrain::sim {
Report run_seeds(const RunOptions& base, SeedRange seeds) {
  return run_worlds<ClusterWorld, Report>(base, seeds, [](Report& report, const RunResult& result) {
    report.events += result.events;
    report.jobs += result.jobs;
    report.attempts += result.attempts;
    report.recoveries += result.recoveries;
    report.lives += result.lives;
    report.commits += result.commits;
  });
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return replay_command("cluster", options.nodes, seed, options.duration, options.faults.text(), options.broken_rule);
}

namespace {

Result<RunOutcome> run(const RunRequest& request) {
  if (request.nodes > kMostHosts)
    return fail(ErrorCode::invalid,
                "could not run " + std::to_string(request.nodes) + " nodes: world cluster has at most " + std::to_string(kMostHosts),
                "use --nodes " + std::to_string(kMostHosts));
  const auto faults = FaultSet::parse(request.faults);
  if (!faults) return tl::unexpected(faults.error());
  RunOptions options;
  options.nodes = std::max<std::size_t>(request.nodes, 1);
  options.duration = request.duration;
  options.faults = *faults;
  options.broken_rule = request.broken_rule;
  options.trace = request.trace;
  const Report report = run_seeds(options, request.seeds);
  const double rate = report.cpu_seconds > 0 ? static_cast<double>(report.events) / report.cpu_seconds : 0;
  nlohmann::json line = line_of(report, "cluster", options.nodes);
  line.update({{"events", report.events},
               {"events_per_second", rate},
               {"jobs", report.jobs},
               {"attempts", report.attempts},
               {"recoveries", report.recoveries},
               {"lives", report.lives},
               {"commits", report.commits}});
  char text[240];
  std::snprintf(text, sizeof text,
                "cluster: %llu seeds of %zu hosts held, %.0f virtual seconds (%.0f per second), %llu events (%.0f/s), %llu jobs, %llu "
                "attempts, %llu lives of the agent",
                static_cast<unsigned long long>(report.seeds), options.nodes, report.virtual_seconds,
                line["virtual_seconds_per_second"].get<double>(), static_cast<unsigned long long>(report.events), rate,
                static_cast<unsigned long long>(report.jobs), static_cast<unsigned long long>(report.attempts),
                static_cast<unsigned long long>(report.lives));
  return outcome_of(report, std::move(line), text, replay_command(options, report.failed_seed));
}

std::vector<std::string> checkers() { return ClusterWorld(RunOptions{}).checker_names(); }

}  // namespace

const World& cluster_world() {
  static const World world{"cluster",     "1 to 200 hosts, their agents, tasks and disks, the network between them, users",
                           cluster_rules, FaultSet::all_names,
                           checkers,      run};
  return world;
}

}  // namespace dtrain::sim
