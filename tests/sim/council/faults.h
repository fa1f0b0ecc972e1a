// The faults of world council; each has its own switch on the command line (--faults).
#pragma once

#include <span>
#include <string_view>

#include "tests/sim/fault_set.h"

namespace dtrain::sim::council {

enum class Fault : unsigned char {
  loss,            // messages are lost
  duplicate,       // messages come twice, the second time up to seconds late
  delay,           // messages overtake each other; single ones take up to seconds
  crash,           // an agent is killed and started again: what was not yet durable is lost
  outage,          // most agents are killed within a moment, and started again
  reboot,          // a host vanishes without a word and comes back, its boot clock at 0
  pause,           // an agent is stopped (SIGSTOP) for up to 6 s
  stall,           // an agent is stopped for up to 800 ms, one at a time: no reason to elect anybody
  partition,       // two groups of hosts do not hear each other
  isolate,         // one host hears and reaches nobody, long enough to need a snapshot
  one_way,         // what one host sends to some others is lost
  clock_drift,     // clocks run up to 1 % fast or slow
  slow_disk,       // a disk takes up to 300 ms to persist
  disk_error,      // a disk fails: written or not, nobody knows; the machine reboots later
  lost_disk,       // a machine comes back without its disk: a new member
  old_disk,        // a machine comes back with an older copy of its disk: it may not vote
  resize,          // the council grows 1 -> 3 -> 5 and shrinks again
  hasty_resize,    // several changes are asked for at once, of any member that believes it leads
  transfer,        // leadership is handed to another voter
  gone,            // members that connect to a killed leader are refused, and report it
  false_gone,      // the same evidence about a leader that is well
  recover_quorum,  // most disks are lost for ever: one survivor begins a new history
  new_state,       // the owner of a member wants the leader's state in the place of its own, which differs
};
std::string_view to_string(Fault fault);
std::span<const std::string_view> fault_names(Fault);
inline constexpr std::size_t kFaults = 23;

using FaultSet = NamedFaults<Fault>;

}  // namespace dtrain::sim::council
