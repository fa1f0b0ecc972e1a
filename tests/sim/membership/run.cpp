#include "tests/sim/membership/run.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/gossip/rules.h"

namespace dtrain::sim::membership {
namespace {

constexpr std::uint32_t kCompareMost = 1000;  // members: larger clusters only take the time of smaller ones' code

Result<RunOutcome> run(const RunRequest& request) {
  const auto options = options_of<RunOptions>(request, "membership", MembershipWorld::kMostNodes);
  if (!options) return tl::unexpected(options.error());
  const Report report = run_seeds(*options, request.seeds);
  const double rate = report.cpu_seconds > 0 ? static_cast<double>(report.events) / report.cpu_seconds : 0;
  nlohmann::json line = line_of(report, "membership", options->nodes);
  line["events"] = report.events;
  line["events_per_second"] = rate;
  line.update(report.figures.json());
  char text[200];
  std::snprintf(text, sizeof text,
                "membership: %llu seeds of %u members held, %.0f virtual seconds (%.0f per second), %llu events (%.0f/s), %llu "
                "false positives",
                static_cast<unsigned long long>(report.seeds), options->nodes, report.virtual_seconds,
                line["virtual_seconds_per_second"].get<double>(), static_cast<unsigned long long>(report.events), rate,
                static_cast<unsigned long long>(report.figures.false_positives));
  return outcome_of(report, std::move(line), text, replay_command(*options, report.failed_seed));
}

std::vector<std::string> checkers() { return MembershipWorld(RunOptions{}).checker_names(); }

}  // namespace

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  Report report;
  RunOptions options = base;
  const auto run = [&](std::uint64_t seed) {
    options.seed = seed;
    RunResult result = MembershipWorld(options).run();
    report.events += result.events;  // here, since a second run takes its time, too
    return result;
  };
  const auto replay = [&](std::uint64_t seed) { return replay_command(base, seed); };
  const std::uint64_t compare_every = base.trace || base.nodes > kCompareMost ? 0 : kCompareEvery;
  run_each_seed(report, seeds, compare_every, run, replay, [&](const RunResult& result) { report.figures.join_run(result.figures); });
  return report;
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return sim::replay_command("membership", options.nodes, seed, options.duration, options.faults.text(), options.broken_rule);
}

const World& membership_world() {
  static const World world{
      "membership", "up to ten thousand agents, the network between them, and faults", gossip::Rules::names, FaultSet::all_names, checkers,
      run};
  return world;
}

}  // namespace dtrain::sim::membership
