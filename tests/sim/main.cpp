// dtrain-sim: draws the deciding half of dtrain ten thousand times through a simulated world full of faults.
// Command line, output and exit codes: docs/simulator.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/job/manifest.h"
#include "tests/sim/run_seeds.h"

namespace {

using namespace dtrain;
using namespace dtrain::sim;

constexpr int kHeld = 0, kBroken = 1, kUsage = 2;

struct Arguments {
  bool list = false, json = false, trace = false;
  std::string world, seeds = "1..100", duration = "300s", faults = "all", rule;
  std::uint64_t nodes = 1;
};

int usage(const std::string& why) {
  std::fprintf(stderr, "dtrain-sim: %s\n", why.c_str());
  return kUsage;
}

int list_worlds(bool json) {
  if (json) {
    std::puts(nlohmann::json{{"worlds", {{"cluster", {{"rules", cluster_rules()}}}}}}.dump().c_str());
    return kHeld;
  }
  std::puts("cluster: one host, its agent, tasks, disk and users; rules that --break switches off:");
  for (const std::string& rule : cluster_rules()) std::printf("  %s\n", rule.c_str());
  return kHeld;
}

void print_report(const Arguments& arguments, const Report& report) {
  const double events_per_second = report.real_seconds > 0 ? static_cast<double>(report.events) / report.real_seconds : 0;
  if (arguments.json) {
    nlohmann::json line = {{"world", arguments.world},
                           {"nodes", arguments.nodes},
                           {"seeds", report.seeds},
                           {"virtual_seconds", report.virtual_seconds},
                           {"events", report.events},
                           {"events_per_second", events_per_second},
                           {"real_seconds", report.real_seconds},
                           {"compared", report.compared},
                           {"jobs", report.jobs},
                           {"attempts", report.attempts},
                           {"recoveries", report.recoveries},
                           {"lives", report.lives},
                           {"commits", report.commits}};
    if (report.violation)
      line["violation"] = {{"seed", report.failed_seed},
                           {"invariant", report.violation->invariant},
                           {"at", seconds_text(report.violation->at)},
                           {"what", report.violation->what}};
    std::puts(line.dump().c_str());
    return;
  }
  std::printf("cluster: %llu seeds held, %.0f virtual seconds, %llu events (%.0f/s), %llu jobs, %llu attempts, %llu lives of the agent\n",
              static_cast<unsigned long long>(report.seeds), report.virtual_seconds,
              static_cast<unsigned long long>(report.events), events_per_second, static_cast<unsigned long long>(report.jobs),
              static_cast<unsigned long long>(report.attempts), static_cast<unsigned long long>(report.lives));
}

int run(const Arguments& arguments) {
  if (arguments.world != "cluster")
    return usage("could not run world '" + arguments.world + "': it is not known; dtrain-sim --list names them");
  if (arguments.nodes != 1)
    return usage("could not run " + std::to_string(arguments.nodes) + " nodes: this version of world cluster has one; leave --nodes out");
  RunOptions options;
  const auto seeds = SeedRange::parse(arguments.seeds);
  if (!seeds) return usage(seeds.error().text());
  const auto duration = job::parse_duration(arguments.duration);
  if (!duration) return usage(duration.error().text());
  const auto faults = FaultSet::parse(arguments.faults);
  if (!faults) return usage(faults.error().text());
  const auto rules = cluster_rules();
  if (!arguments.rule.empty() && std::find(rules.begin(), rules.end(), arguments.rule) == rules.end())
    return usage("could not break rule '" + arguments.rule + "': it is not known; dtrain-sim --list names them");
  options.duration = *duration;
  options.faults = *faults;
  options.broken_rule = arguments.rule;
  options.trace = arguments.trace;
  const Report report = run_seeds(options, *seeds);
  print_report(arguments, report);
  if (!report.violation) return kHeld;
  std::fflush(stdout);
  std::fprintf(stderr, "seed %llu broke %s at %s: %s\nreplay: %s\n", static_cast<unsigned long long>(report.failed_seed),
               report.violation->invariant.c_str(), seconds_text(report.violation->at).c_str(), report.violation->what.c_str(),
               replay_command(options, arguments.nodes, report.failed_seed).c_str());
  return kBroken;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Simulated worlds for dtrain's deciding half", "dtrain-sim");
  app.add_flag("--list", arguments.list, "name the worlds and the rules that --break knows");
  app.add_option("--world", arguments.world, "the world to run");
  app.add_option("--nodes", arguments.nodes, "hosts in it");
  app.add_option("--seeds", arguments.seeds, "FIRST..LAST");
  app.add_option("--duration", arguments.duration, "virtual time of one run");
  app.add_option("--faults", arguments.faults, "all, none, or a comma list");
  app.add_option("--break", arguments.rule, "switch one rule off: the checkers must notice");
  app.add_flag("--json", arguments.json, "one line per world");
  app.add_flag("--trace", arguments.trace, "print every event and effect");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage(error.what());
  }
  if (arguments.list) return list_worlds(arguments.json);
  if (arguments.world.empty()) return usage("could not run: no world was named; use --world NAME or --list");
  return run(arguments);
}
