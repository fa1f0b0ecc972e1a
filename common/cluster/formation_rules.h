// The rules of formation that --break can switch off one at a time, to show that tests and simulator notice. All hold
// in production. docs/consensus.md explains each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::cluster::formation {

enum class Rule : std::uint8_t {
  one_promise,            // a founder promises one founding at a time, and none if it belongs to a cluster
  promise_durable,        // a promise is durable before it is sent
  all_promised,           // all founders have promised before the log begins
  founder_by_id,          // a founder promises only a founding that has its own id, not just its name
  withdrawn_is_final,     // what was withdrawn is never promised again and never begun
  proposer_withdraws,     // the proposer withdraws first: the others follow, or know that it is gone
  majority_without,       // a founding that leaves founders out has a majority of them
  void_before_without,    // it is promised only when earlier promises can never have a majority
  abandoned_by_majority,  // a log that has begun is given up only when most of its voters will never take part
};
constexpr Rule enum_last(Rule) { return Rule::abandoned_by_majority; }

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::cluster::formation
