#include "common/gossip/rules.h"

#include <iterator>

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
    "lag-counts",
    "frozen-tells-suspicions",
};
constexpr auto kLast = static_cast<std::size_t>(Rule::frozen_tells_suspicions);
static_assert(std::size(kNames) == kLast + 1);

}  // namespace

std::span<const std::string_view> rule_names(Rule) { return kNames; }

}  // namespace dtrain::gossip
