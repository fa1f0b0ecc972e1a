#include "tests/sim/membership/run.h"

#include <cstdio>

#include "common/gossip/rules.h"

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
  char text[200];
  std::snprintf(text, sizeof text,
                "membership: %llu seeds of %u members held, %.0f virtual seconds, %llu events (%.0f/s), %llu "
                "false positives",
                static_cast<unsigned long long>(report.seeds), options.nodes, report.virtual_seconds,
                static_cast<unsigned long long>(report.events), rate,
                static_cast<unsigned long long>(report.figures.false_positives));
  return outcome_of(report, std::move(line), text, replay_command(options, report.failed_seed));
}

std::vector<std::string> checkers() {
  return MembershipWorld(RunOptions{}).checker_names();
}

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
  run_each_seed(report, seeds, compare_every, run, replay,
                [&](const RunResult& result) { report.figures.join_run(result.figures); });
  return report;
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return sim::replay_command("membership", options.nodes, seed, options.duration, options.faults.text(),
                             options.broken_rule);
}

const World& membership_world() {
  static const World world{"membership",
                           "up to ten thousand agents, the network between them, and faults",
                           gossip::Rules::names,
                           FaultSet::all_names,
                           checkers,
                           run};
  return world;
}

}  // namespace dtrain::sim::membership
