// dtrain-sim: draws the deciding half of dtrain ten thousand times through a simulated world full of faults.
// Command line, output and exit codes: docs/simulator.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/job/manifest.h"
#include "tests/sim/council/run.h"
#include "tests/sim/formation/run.h"
#include "tests/sim/lease/run.h"
#include "tests/sim/membership/run.h"
#include "tests/sim/run_seeds.h"

namespace {

using namespace dtrain;
using namespace dtrain::sim;

constexpr int kHeld = 0, kBroken = 1, kUsage = 2;

struct Arguments {
  bool list = false, json = false, trace = false;
  std::string world, seeds = "1..100", duration = "300s", faults = "all", rule;
  std::uint64_t nodes = 0;
};

int usage(const std::string& why) {
  std::fprintf(stderr, "dtrain-sim: %s\n", why.c_str());
  return kUsage;
}

std::vector<const World*> all_worlds() {
  return {&cluster_world(), &membership::membership_world(), &council::council_world(), &formation::formation_world(),
          &lease::lease_world()};
}

void print_names(const char* title, const std::vector<std::string>& names) {
  std::printf("  %s:\n", title);
  for (const std::string& name : names) std::printf("    %s\n", name.c_str());
}

int list_worlds(bool json) {
  nlohmann::json worlds;
  for (const World* world : all_worlds()) {
    worlds[std::string(world->name)] = {{"rules", world->rules()}, {"faults", world->faults()}, {"checkers", world->checkers()}};
    if (json) continue;
    std::printf("%s: %s\n", std::string(world->name).c_str(), std::string(world->summary).c_str());
    print_names("rules that --break switches off", world->rules());
    print_names("faults", world->faults());
    print_names("checkers", world->checkers());
  }
  if (json) std::puts(nlohmann::json{{"worlds", worlds}}.dump().c_str());
  return kHeld;
}

int run(const Arguments& arguments) {
  const auto worlds = all_worlds();
  const auto world = std::find_if(worlds.begin(), worlds.end(), [&](const World* w) { return w->name == arguments.world; });
  if (world == worlds.end()) return usage("could not run world '" + arguments.world + "': it is not known; dtrain-sim --list names them");
  const auto seeds = SeedRange::parse(arguments.seeds);
  if (!seeds) return usage(seeds.error().text());
  const auto duration = job::parse_duration(arguments.duration);
  if (!duration) return usage(duration.error().text());
  const auto rules = (*world)->rules();
  if (!arguments.rule.empty() && std::find(rules.begin(), rules.end(), arguments.rule) == rules.end())
    return usage("could not break rule '" + arguments.rule + "': it is not known; dtrain-sim --list names them");
  RunRequest request;
  request.nodes = arguments.nodes;
  request.seeds = *seeds;
  request.duration = *duration;
  request.faults = arguments.faults;
  request.broken_rule = arguments.rule;
  request.trace = arguments.trace;
  const auto outcome = (*world)->run(request);
  if (!outcome) return usage(outcome.error().text());
  std::puts((arguments.json ? outcome->figures : outcome->text).c_str());
  if (!outcome->violation) return kHeld;
  std::fflush(stdout);
  std::fprintf(stderr, "seed %llu broke %s at %s: %s\nreplay: %s\n", static_cast<unsigned long long>(outcome->failed_seed),
               outcome->violation->invariant.c_str(), seconds_text(outcome->violation->at).c_str(), outcome->violation->what.c_str(),
               outcome->replay.c_str());
  return kBroken;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Simulated worlds for dtrain's deciding half", "dtrain-sim");
  app.add_flag("--list", arguments.list, "name the worlds, their rules for --break, faults and checkers");
  app.add_option("--world", arguments.world, "the world to run");
  app.add_option("--nodes", arguments.nodes, "hosts in it; how many it takes and has by itself: docs/simulator.md");
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
