// The rules of formation that --break can switch off one at a time, to show that tests and simulator notice.
// All hold in production. docs/consensus.md says what each is for.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::cluster::formation {

enum class Rule : std::uint8_t {
  one_promise,            // to one founding at a time, and to none who belongs to a cluster
  promise_durable,        // before it is said
  all_promised,           // before the log begins
  founder_by_id,          // a promise only to a founding that has the own id, not just the own name
  withdrawn_is_final,     // never promised again, never begun
  proposer_withdraws,     // first: the others follow, or know that it is gone
  majority_without,       // a founding that leaves founders out has a majority of them
  void_before_without,    // and is promised only when what was promised before can never have a majority
  abandoned_by_majority,  // a log that has begun is given up only when most of its voters never take part
};
constexpr Rule enum_last(Rule) {
  return Rule::abandoned_by_majority;
}

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::cluster::formation
