// The rules of granting leases that --break can switch off one at a time, to show that tests and simulator notice.
// All hold in production. docs/leases.md explains each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::cluster::lease {

enum class Rule : std::uint8_t {
  fresh_round,            // nothing is granted without a quorum round
  round_after_arrival,    // the round began after the request arrived
  margin,                 // more than the lease is counted, because clocks drift and hosts stop
  count_from_election,    // a new coordinator counts what its predecessors may have granted
  silence_is_no_proof,    // a report that does not mention an attempt proves nothing
  accepted_before_proof,  // a report proves something only if its host has accepted this coordinator's order
  newest_attempt,         // the exit of an attempt proves nothing once a later one was granted
  no_grant_after_decision,  // nothing is granted once a successor was decided on, even before the log applies that
  one_boot,               // an assignment belongs to one boot of its host
  agent_grace,            // an agent that is gone while its host is up gets time to come back
  exempt_stays,           // a task without a lease is replaced only on proof of its end
};
constexpr Rule enum_last(Rule) {
  return Rule::exempt_stays;
}

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::cluster::lease
