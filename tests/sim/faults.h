// What may go wrong in a simulated world: each fault has its own switch on the command line (--faults).
#pragma once

#include <array>
#include <bitset>
#include <string>
#include <string_view>

#include "common/base/result.h"

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
};
inline constexpr std::size_t kFaultCount = 11;
std::string_view to_string(Fault fault);   // "task-kill"

class FaultSet {
 public:
  static FaultSet all();
  // "all", "none", or a comma list of names; an unknown name is an error that lists the known ones.
  static Result<FaultSet> parse(std::string_view text);
  std::string text() const;                // as parse() takes it
  bool has(Fault fault) const { return bits_.test(static_cast<std::size_t>(fault)); }
  void set(Fault fault, bool on = true) { bits_.set(static_cast<std::size_t>(fault), on); }
  bool none() const { return bits_.none(); }

 private:
  std::bitset<kFaultCount> bits_;
};

}  // namespace dtrain::sim
