#include "common/gossip/rules.h"

#include <algorithm>

namespace dtrain::gossip {

namespace {

constexpr std::string_view kNames[] = {
    "alive-needs-higher-incarnation",
    "refute-goes-above-accusation",
    "restart-raises-restarted",
    "accuser-counts-once",
    "stale-timer-checked",
    "remote-dead-is-suspect",
    "probe-carries-suspicion",
    "shuffle-probes",
    "send-failure-is-failed-probe",
    "pong-must-match",
    "fewest-transmitted-first",
    "random-phase",
    "retry-dead-for-ever",
    "tombstones-outlive-sync",
    "other-cluster-dropped",
    "tick-gap-discards-verdicts",
    "bad-health-starts-at-max",
    "freeze-without-quorum",
    "confirm-on-demand",
    "gone-needs-two",
};
constexpr auto kLast = static_cast<std::size_t>(Rule::gone_needs_two);
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

}  // namespace dtrain::gossip
