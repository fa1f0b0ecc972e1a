// The faults of world formation; each has its own switch on the command line (--faults).
#pragma once

#include <span>
#include <string_view>

#include "tests/sim/fault_set.h"

namespace dtrain::sim::formation {

enum class Fault : unsigned char {
  late_start,  // machines start one after the other, within half a minute
  loss,        // messages are lost
  duplicate,   // messages come twice, the second time up to seconds late
  delay,       // messages overtake each other; single ones take up to seconds
  ghost,       // single messages take up to half a minute: their sender may be another by then
  crash,       // an agent is killed and started again: what was not yet durable is lost
  partition,   // two groups of machines do not hear each other
  isolate,     // one machine hears and reaches nobody
  one_way,     // what one machine sends to some others is lost
  slow_disk,   // a disk takes up to a second to persist
  disk_error,  // a disk fails: written or not, nobody knows; the machine reboots later
  lost_disk,   // a machine comes back without its disk
  without,     // an operator forms the cluster without unreachable founders, rightly or wrongly
};
std::string_view to_string(Fault fault);
std::span<const std::string_view> fault_names(Fault);
inline constexpr std::size_t kFaults = 13;

using FaultSet = NamedFaults<Fault>;

}  // namespace dtrain::sim::formation
