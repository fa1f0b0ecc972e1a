#include "common/raft/rules.h"

#include <algorithm>

namespace dtrain::raft {

namespace {

constexpr std::string_view kNames[] = {
    "pre-vote",
    "check-quorum",
    "refusal-carries-own-term",
    "own-term-entry",
    "ack-verified-only",
    "commit-verified-only",
    "durable-before-send",
    "one-change-at-a-time",
    "truncated-config-rolls-back",
    "snapshot-carries-config",
    "one-vote-per-term",
    "fresh-life-only",
    "applied-once",
    "disk-error-stops-voting",
    "read-index-confirmed",
    "elapsed-from-leader",
    "history-fences",
};
constexpr auto kLast = static_cast<std::size_t>(Rule::history_fences);
static_assert(std::size(kNames) == kLast + 1);

}  // namespace

std::string to_string(Rule rule) {
  return std::string(kNames[static_cast<std::size_t>(rule)]);
}

const std::vector<std::string>& breakable_rules() {
  static const std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  return names;
}

Rules::Rules(std::string_view broken_rule) {
  const auto found = std::ranges::find(kNames, broken_rule);
  any_ = found != std::end(kNames);
  if (any_) broken_ = static_cast<Rule>(found - std::begin(kNames));
}

}  // namespace dtrain::raft
