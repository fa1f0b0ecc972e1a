// The protocol rules that --break can switch off one at a time, to show that tests and simulator notice. All
// hold in production.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::gossip {

enum class Rule : std::uint8_t {
  alive_needs_higher_incarnation,  // 1
  refute_goes_above_accusation,    // 2
  restart_raises_restarted,        // 3
  accuser_counts_once,             // 4
  stale_timer_checked,             // 5
  remote_dead_is_suspect,          // 6
  probe_carries_suspicion,         // 7
  shuffle_probes,                  // 8
  send_failure_is_failed_probe,    // 9
  pong_must_match,                 // 10
  fewest_transmitted_first,        // 11
  random_phase,                    // 12
  retry_dead_for_ever,             // 13
  tombstones_outlive_sync,         // 14
  other_cluster_dropped,           // 15
  tick_gap_discards_verdicts,      // 16
  bad_health_starts_at_max,        // 17
  freeze_without_quorum,           // 18
  confirm_on_demand,               // the suspector asks k others to probe now
  gone_needs_two,                  // witnesses of a process that is gone
  lag_counts,                      // a node that runs late itself waits longer and sends less often
  frozen_tells_suspicions,         // to the node that it syncs with, because a cut may leave it no neighbour on its side
};
constexpr Rule enum_last(Rule) { return Rule::frozen_tells_suspicions; }

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::gossip
