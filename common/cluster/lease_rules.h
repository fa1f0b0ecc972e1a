// The rules of granting leases that --break can switch off one at a time, to show that tests and simulator notice.
// All hold in production. docs/leases.md explains each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::cluster::lease {

enum class Rule : std::uint8_t {
  fresh_round,              // nothing is granted without a quorum round
  round_after_arrival,      // the round began after the request arrived
  margin,                   // more than the lease is counted, because clocks drift and hosts stop
  count_from_election,      // a new coordinator counts what its predecessors may have granted
  no_grant_after_decision,  // nothing is granted once a successor was decided on, even before the log applies that
  agent_grace,              // an agent that is gone while its host is up gets time to come back
};
constexpr Rule enum_last(Rule) { return Rule::agent_grace; }

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::cluster::lease
