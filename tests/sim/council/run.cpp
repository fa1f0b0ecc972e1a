#include "tests/sim/council/run.h"

#include <cstdio>

#include "common/raft/rules.h"

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
  return outcome_of(report, std::move(line), text, replay_command(options, report.failed_seed));
}

std::vector<std::string> checkers() {
  return CouncilWorld(RunOptions{}).checker_names();
}

}  // namespace

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  Report report;
  RunOptions options = base;
  const auto run = [&](std::uint64_t seed) {
    options.seed = seed;
    return CouncilWorld(options).run();
  };
  const auto replay = [&](std::uint64_t seed) { return replay_command(base, seed); };
  run_each_seed(report, seeds, base.trace ? 0 : kCompareEvery, run, replay,
                [&](const RunResult& result) { report.figures.join(result.figures); });
  return report;
}

std::string replay_command(const RunOptions& options, std::uint64_t seed) {
  return sim::replay_command("council", options.nodes, seed, options.duration, options.faults.text(),
                             options.broken_rule);
}

const World& council_world() {
  static const World world{
      "council",          "1 to 5 voters of one log, their disks, clients, an operator, and faults",
      raft::Rules::names, FaultSet::all_names,
      checkers,           run};
  return world;
}

}  // namespace dtrain::sim::council
