// The faults of world membership; each has its own switch on the command line (--faults).
#pragma once

#include <span>
#include <string_view>

#include "tests/sim/fault_set.h"

namespace dtrain::sim::membership {

enum class Fault : unsigned char {
  loss,            // packets are lost; TCP sends them again, later
  duplicate,       // a message comes twice, the second time up to seconds late
  crash,           // an agent is killed and never comes back; its host lives
  host_crash,      // a host vanishes for ever
  restart,         // an agent is killed and started again
  stop,            // an agent is told to stop, says so, and is started again
  reboot,          // a host vanishes and comes back with a new boot id
  address_change,  // an agent comes back with another address
  lost_disk,       // an agent comes back without its data directory
  old_disk,        // an agent comes back with an older copy of its data directory
  copied_disk,     // a second host runs a copy of a data directory
  name_conflict,   // a second host uses a name that is taken
  pause,           // an agent is stopped (SIGSTOP) for up to 25 s
  stall_third,     // a third of the agents: 16.4 s stopped, 64 ms running, again and again
  partition,       // two groups of hosts do not hear each other
  isolate,         // one host hears and reaches nobody
  one_way,         // what some hosts send is lost, or what is sent to them
  flip_flop,       // single pairs of hosts lose sight of each other, again and again
  clock_drift,     // clocks run up to 1 % fast or slow
  leave,           // a member leaves for good
  churn,           // new members come, old ones leave or crash for ever
  mass_restart,    // nearly all agents are killed and started again
  other_cluster,   // hosts of another cluster, which take over addresses of this one
};
std::string_view to_string(Fault fault);
std::span<const std::string_view> fault_names(Fault);
inline constexpr std::size_t kFaults = 23;

using FaultSet = NamedFaults<Fault>;

}  // namespace dtrain::sim::membership
