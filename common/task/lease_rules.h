// The rules of who holds a lease that --break can switch off one at a time, to show that tests and simulator notice.
// All hold in production. docs/leases.md says what each is for.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::task::lease {

enum class Rule : std::uint8_t {
  from_asking,          // a grant counts from when it was asked for, not from its arrival
  expiry_first,         // is enforced before anything that was received is looked at
  start_asks,           // a start, first or again, needs a grant asked for after it was ordered
  thaw_asks,            // a thaw needs one asked for after the freeze began
  own_nonce,            // an answer is one to a question that this shim asked
  freeze_bounded,       // what is not frozen in time is killed
  superseded_stays,     // what is superseded is killed as it is, never thawed, never started again
  stop_thaws,           // a graceful stop thaws before it signals
  epoch_fence,          // a lower epoch is refused
  revision_fence,       // within an epoch a lower revision is refused
  guard_freezes,        // the agent freezes where the shim does not
  guard_reads_record,   // a new life of the agent learns from the shim's record until when the lease is
};
constexpr Rule enum_last(Rule) {
  return Rule::guard_reads_record;
}

std::span<const std::string_view> rule_names(Rule);  // as --break spells them, in the order above
using Rules = BreakableRules<Rule>;

}  // namespace dtrain::task::lease
