// The faults of world lease; each has its own switch on the command line (--faults).
#pragma once

#include <span>
#include <string_view>

#include "tests/sim/fault_set.h"

namespace dtrain::sim::lease {

enum class Fault : unsigned char {
  loss,               // messages are lost
  duplicate,          // messages come twice, the second time up to seconds late
  delay,              // messages overtake each other; single ones take up to seconds
  slow_acks,          // answers of single voters are slow for a while: rounds take seconds
  slow_disk,          // the disks of all voters are slow for a while: what is proposed is committed seconds later
  slow_freeze,        // freezing takes up to seconds
  partition,          // two groups of machines do not hear each other
  isolate,            // one machine hears and reaches nobody
  flapping,           // the network of one host goes for about a lease, comes back for a moment, and goes again
  one_way,            // what one machine sends to some others is lost
  shim_pause,         // a shim is stopped, its task runs on
  agent_pause,        // an agent is stopped
  coordinator_pause,  // the coordinator is stopped, often during a round
  deposed,            // the coordinator is stopped during a round, deposed, cut off together with some hosts, and continues
  host_pause,         // a whole host is stopped; its task runs again before its shim does
  agent_kill,         // an agent is killed and started again
  wiped_store,        // and finds its store empty
  reboot,             // a host loses all its processes, and its clock begins anew
  task_crash,         // a task ends: it is started again in place
  move,               // a task is wanted on another host
  clock_drift,        // clocks run fast or slow by up to 1 %
};
std::string_view to_string(Fault fault);
std::span<const std::string_view> fault_names(Fault);
inline constexpr std::size_t kFaults = 21;

using FaultSet = NamedFaults<Fault>;

}  // namespace dtrain::sim::lease
