// The rules of leases that --break can switch off one at a time, to show that tests and simulator notice. All hold in
// production. docs/leases.md explains each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::task::lease {

enum class Rule : std::uint8_t {
  from_asking,         // a grant counts from when it was asked for, not from its arrival
  expiry_first,        // the end of a lease is enforced before anything received is looked at
  start_asks,          // a start, the first or a later one, needs a grant that was asked for after the order
  thaw_asks,           // a thaw needs a grant that was asked for after the freeze began
  own_nonce,           // only an answer to this shim's own question counts
  freeze_bounded,      // a task that is not frozen in time is killed
  superseded_stays,    // a superseded task is killed, frozen or not, and neither thawed nor started again
  epoch_fence,         // an answer of a lower epoch is refused
  guard_freezes,       // the agent freezes the task if the shim does not
  guard_reads_record,  // a new life of the agent reads the end of the lease from the shim's record
};
constexpr Rule enum_last(Rule) { return Rule::guard_reads_record; }

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::task::lease
