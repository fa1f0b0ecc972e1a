#include "tests/sim/run_seeds.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace dtrain::sim {
namespace {

constexpr std::uint64_t kCompareEvery = 16;   // of the seeds run twice; the first one always is

bool parse_number(std::string_view text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Result<SeedRange> SeedRange::parse(std::string_view text) {
  SeedRange range;
  const std::size_t dots = text.find("..");
  const bool good = parse_number(text.substr(0, dots), range.first) &&
                    (dots == std::string_view::npos || parse_number(text.substr(dots + 2), range.last));
  if (dots == std::string_view::npos) range.last = range.first;
  if (!good || range.last < range.first)
    return fail(ErrorCode::invalid, "could not read the seeds '" + std::string(text) + "': they are no range", "write FIRST..LAST");
  return range;
}

Report run_seeds(const RunOptions& base, SeedRange seeds) {
  Report report;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = seeds.first;; ++seed) {
    RunOptions options = base;
    options.seed = seed;
    const RunResult result = ClusterWorld(options).run();
    report.virtual_seconds += std::chrono::duration<double>(result.covered).count();
    report.events += result.events;
    report.jobs += result.jobs;
    report.attempts += result.attempts;
    report.recoveries += result.recoveries;
    report.lives += result.lives;
    report.commits += result.commits;
    report.violation = result.violation;
    if (!report.violation && !options.trace && (seed - seeds.first) % kCompareEvery == 0) {
      ++report.compared;
      const RunResult again = ClusterWorld(options).run();
      if (again.trace_hash != result.trace_hash)
        report.violation = Violation{"deterministic", "a second run of the same seed took another course", Instant{} + result.covered};
    }
    if (report.violation) {
      report.failed_seed = seed;
      break;
    }
    ++report.seeds;
    if (seed == seeds.last) break;
  }
  report.real_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

std::string replay_command(const RunOptions& options, std::uint64_t nodes, std::uint64_t seed) {
  std::string out = "dtrain-sim --world cluster --nodes " + std::to_string(nodes) + " --seeds " + std::to_string(seed) + ".." +
                    std::to_string(seed) + " --duration " +
                    std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(options.duration).count()) + "ms --faults " +
                    options.faults.text();
  if (!options.broken_rule.empty()) out += " --break " + options.broken_rule;
  return out;
}

}  // namespace dtrain::sim
