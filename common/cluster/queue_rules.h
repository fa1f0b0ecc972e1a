// The queue's rules that can be switched off one at a time, to show that tests notice. All hold in production.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/breakable_rules.h"

namespace dtrain::cluster {

enum class QueueRule : std::uint8_t {
  first_is_reserved,            // the first that does not fit has a reservation
  reservation_is_kept,          // until its job starts
  back_fill_delays_nobody,      // a job is back-filled only on what the reservation does not need, or for as long as it does not need it
  never_fits_delays_nobody,     // what does not fit the empty cluster reserves nothing
  victims_have_lower_priority,  // victims have a lower priority, never the same
  never_fits_is_true,           // "never fits" is decided by the empty cluster, not by what is free
};
constexpr QueueRule enum_last(QueueRule) { return QueueRule::never_fits_is_true; }

std::span<const std::string_view> rule_names(QueueRule);  // as tests spell them, in the order above

}  // namespace dtrain::cluster
