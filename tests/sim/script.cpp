#include "tests/sim/script.h"

#include <charconv>
#include <string_view>

namespace dtrain::sim {
namespace {

constexpr Duration kCalmMin = 300ms, kCalmMax = 6s;

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Duration milliseconds(std::string_view text) { return std::chrono::milliseconds(number(text)); }
std::string in_milliseconds(Duration d) { return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(d).count()); }

Duration between(Duration low, Duration high, Rng& rng) {
  if (high <= low) return low;
  return low + Duration(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>((high - low).count()))));
}

}  // namespace

std::vector<std::string> Script::argv() const {
  std::vector<std::string> words{"sim", "tag=" + std::to_string(tag)};
  const auto time = [&](const char* key, Duration d) {
    if (d > Duration{0}) words.push_back(key + in_milliseconds(d));
  };
  const auto natural = [&](const char* key, std::uint32_t n) {
    if (n != 0) words.push_back(key + std::to_string(n));
  };
  if (forever) words.push_back("forever");
  if (ignore_term) words.push_back("ignore-term");
  if (missing) words.push_back("missing");
  if (!says.empty()) words.push_back("says=" + says);
  if (!watches.empty()) words.push_back("watches=" + watches);
  words.push_back("run=" + in_milliseconds(run_min) + ".." + in_milliseconds(run_max));
  words.push_back("ok=" + std::to_string(ok));
  words.push_back("code=" + std::to_string(code));
  if (signal != 0) words.push_back("signal=" + std::to_string(signal));
  if (term_code >= 0) words.push_back("term-code=" + std::to_string(term_code));
  natural("hang=", hang);
  natural("torn=", torn);
  natural("rotten=", rotten);
  natural("children=", children);
  time("term=", term);
  time("ready=", ready);
  time("status=", status);
  time("watchdog=", watchdog);
  time("checkpoint=", checkpoint);
  time("leaves=", leaves);
  return words;
}

Script Script::parse(const std::vector<std::string>& argv) {
  Script s;
  for (const std::string& word : argv) {
    const std::size_t equals = word.find('=');
    const std::string_view key = std::string_view(word).substr(0, equals);
    const std::string_view value = equals == std::string::npos ? std::string_view() : std::string_view(word).substr(equals + 1);
    const auto natural = [&] { return static_cast<std::uint32_t>(number(value)); };
    if (key == "forever") s.forever = true;
    else if (key == "ignore-term") s.ignore_term = true;
    else if (key == "missing") s.missing = true;
    else if (key == "says") s.says = value;
    else if (key == "watches") s.watches = value;
    else if (key == "leaves") s.leaves = milliseconds(value);
    else if (key == "children") s.children = natural();
    else if (key == "tag") s.tag = static_cast<std::uint64_t>(number(value));
    else if (key == "ok") s.ok = natural();
    else if (key == "code") s.code = static_cast<std::int32_t>(number(value));
    else if (key == "signal") s.signal = static_cast<std::int32_t>(number(value));
    else if (key == "hang") s.hang = natural();
    else if (key == "torn") s.torn = natural();
    else if (key == "rotten") s.rotten = natural();
    else if (key == "term") s.term = milliseconds(value);
    else if (key == "term-code") s.term_code = static_cast<std::int32_t>(number(value));
    else if (key == "ready") s.ready = milliseconds(value);
    else if (key == "status") s.status = milliseconds(value);
    else if (key == "watchdog") s.watchdog = milliseconds(value);
    else if (key == "checkpoint") s.checkpoint = milliseconds(value);
    else if (key == "run") {
      const std::size_t dots = value.find("..");
      s.run_min = milliseconds(value.substr(0, dots));
      s.run_max = dots == std::string_view::npos ? s.run_min : milliseconds(value.substr(dots + 2));
    }
  }
  return s;
}

AttemptPlan plan_attempt(const Script& script, bool calm, Rng& rng) {
  AttemptPlan plan;
  if (script.missing) {
    plan.lifetime = Duration{1};
    plan.exit.code = 127;
    plan.exit.cause = "could not execute: no such file or directory";
    return plan;
  }
  if (script.forever) return plan;
  if (calm) {
    plan.lifetime = between(kCalmMin, kCalmMax, rng);
    return plan;
  }
  plan.lifetime = between(script.run_min, script.run_max, rng);
  plan.hangs = script.hang != 0 && rng.chance(script.hang, 100);
  if (!rng.chance(script.ok, 100)) {
    plan.exit.signal = script.signal;
    if (script.signal == 0) plan.exit.code = script.code;
    plan.exit.stderr_tail = "Traceback: simulated";
  }
  return plan;
}

}  // namespace dtrain::sim
