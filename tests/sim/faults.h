// The faults of world cluster; each has its own switch on the command line (--faults). A fault is an enumerator and a name here, and a row
// of kUsual in chaos.cpp, which says how often it comes and what it does; docs/adding.md.
#pragma once

#include <iterator>
#include <span>
#include <string_view>

#include "tests/sim/fault_set.h"

namespace dtrain::sim {

enum class Fault : unsigned char {
  task_kill,          // a task's process is killed by signal
  shim_kill,          // a shim is killed; its task dies with it
  agent_kill,         // the agent is killed: unsynced commits and events in flight are lost; it is started again
  reboot,             // the host goes down and comes up with a new boot id: nothing runs any more
  disk_error,         // one commit fails
  slow_disk,          // commits take up to seconds
  full_disk,          // every commit fails for a while
  clock_jump,         // the wall clock jumps forwards or backwards
  pause,              // the agent gets no CPU for a while; the tasks run on
  checkpoint_damage,  // a good checkpoint rots on disk
  stage_error,        // preparing or launching an assignment fails
  gpu_held,           // processes get out of their tasks, and hold GPUs for a while
  // With several hosts.
  coordinator_kill,  // the coordinator's agent is killed
  partition,         // some hosts and the others do not hear each other
  isolate,           // one host and the others do not hear each other
  one_way,           // what one host sends is lost
  loss,              // of messages
  duplicate,         // messages about the log come twice, the second time late
  delay,             // messages about the log take long
  drain,             // an operator drains a host, and undrains it later
  quorum_lost,       // a majority of the voters goes away for long, and an operator recovers the quorum on a survivor: once in a run
  host_stop,         // a host is stopped in order: its tasks are asked to end; it comes back later
  upgrade,           // hosts are given a newer program one after the other, some the older one again for a while
  host_away,         // a host is away for so long that jobs go on without it, and comes back: again and again, with some seeds
};
inline constexpr std::string_view kFaultNames[] = {
    "task-kill", "shim-kill",         "agent-kill",  "reboot",   "disk-error",       "slow-disk", "full-disk", "clock-jump",
    "pause",     "checkpoint-damage", "stage-error", "gpu-held", "coordinator-kill", "partition", "isolate",   "one-way",
    "loss",      "duplicate",         "delay",       "drain",    "quorum-lost",      "host-stop", "upgrade",   "host-away"};
inline constexpr std::size_t kFaultCount = std::size(kFaultNames);
static_assert(kFaultCount == static_cast<std::size_t>(Fault::host_away) + 1, "each fault has a name; the last one is named here");
constexpr bool among_several(Fault fault) { return fault >= Fault::coordinator_kill; }
inline std::string_view to_string(Fault fault) { return kFaultNames[static_cast<std::size_t>(fault)]; }

inline std::span<const std::string_view> fault_names(Fault) { return kFaultNames; }
using FaultSet = NamedFaults<Fault>;

}  // namespace dtrain::sim
