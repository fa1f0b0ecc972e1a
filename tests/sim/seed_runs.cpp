#include "tests/sim/seed_runs.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace dtrain::sim {

nlohmann::json line_of(const SeedReport& report, std::string_view world, std::uint64_t nodes) {
  const double cpu = report.cpu_seconds > 0 ? report.cpu_seconds : 1e-9;
  return {{"world", world},
          {"nodes", nodes},
          {"seeds", report.seeds},
          {"virtual_seconds", report.virtual_seconds},
          {"virtual_seconds_per_second", report.virtual_seconds / cpu},
          {"seeds_per_second", static_cast<double>(report.seeds) / cpu},
          {"real_seconds", report.real_seconds},
          {"cpu_seconds", report.cpu_seconds},
          {"compared", report.compared}};
}

std::string broken_text(const SeedReport& report) {
  if (!report.violation) return "";
  return "seed " + std::to_string(report.failed_seed) + ": " + report.violation->invariant + ": " + report.violation->what;
}

std::string replay_command(std::string_view world, std::uint64_t nodes, std::uint64_t seed, Duration duration, const std::string& faults,
                           const std::string& broken_rule) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  std::string out = "dtrain-sim --world " + std::string(world) + " --nodes " + std::to_string(nodes) + " --seeds " + std::to_string(seed) +
                    ".." + std::to_string(seed) + " --duration " + std::to_string(ms) + "ms --faults " + faults;
  if (!broken_rule.empty()) out += " --break " + broken_rule;
  return out;
}

RunOutcome outcome_of(const SeedReport& report, nlohmann::json line, std::string text, std::string replay) {
  RunOutcome outcome;
  char hash[20];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(report.trace_hash));
  line["trace_hash"] = hash;
  if (report.seeds + (report.violation ? 1 : 0) == 1) text += std::string(", trace hash ") + hash;
  outcome.text = std::move(text);
  outcome.violation = report.violation;
  outcome.failed_seed = report.failed_seed;
  if (report.violation) {
    outcome.replay = std::move(replay);
    line["violation"] = {{"seed", report.failed_seed},
                         {"invariant", report.violation->invariant},
                         {"at", seconds_text(report.violation->at)},
                         {"what", report.violation->what}};
  }
  outcome.figures = line.dump();
  return outcome;
}

}  // namespace dtrain::sim
