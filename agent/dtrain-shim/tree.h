// All processes of the running attempt. With a cgroup v2 directory they are those in it; without one they are the
// shim's descendants, found in /proc: as subreaper the shim is the ancestor of all orphans.
#pragma once

#include "agent/dtrain-shim/sys.h"
#include "common/task/lead.h"

namespace dtrain::shim {

int parent_of(int pid);                          // 0: it has none, or is gone
bool progress_of(int pid, task::Progress& out);  // false: it is gone, or hidden

class Tree {
 public:
  // `cgroup`: the assignment's directory, whose child `task` is used; "": do without. `memory_cgroup`: v1, or "".
  // Both texts must stay. False: the cgroup cannot be used; errno says why.
  bool open(const char* cgroup, const char* memory_cgroup);
  bool has_cgroup() const { return directory_ >= 0; }
  int cgroup_fd() const { return directory_; }  // for CLONE_INTO_CGROUP
  int events_fd() const { return events_; }     // EPOLLPRI when the cgroup emptied or froze; -1 without a cgroup

  bool cgroup_empty() const;  // true without a cgroup
  void kill_all();
  // To be called when all processes are gone, before the next attempt: makes the cgroup anew if it was ever killed.
  // Linux 6.18 (and others that count kills) takes a process cloned into such a cgroup for one that escaped the kill,
  // and kills it at birth.
  void renew();
  void assume_killed() { killed_ = true; }  // somebody else, the agent, may have killed the cgroup
  void signal_all(int signal) const;
  // To those of that session. Its number can be another's only when none of it is left.
  void signal_session(int session, int signal) const;
  // To all processes at one moment: they are stopped first, so that no new process misses the signal, and then
  // continue. Not for a frozen tree.
  void signal_at_once(int signal) const;

  // Freezing takes time: begin, then step until it returns true. Without a cgroup every step looks for new processes.
  void begin_freeze();
  bool freeze_step();
  void thaw();

  uint64_t memory_kills() const;  // processes that the kernel killed so far because memory ran out

 private:
  int directory_ = -1, events_ = -1, freeze_ = -1, kill_ = -1;
  int memory_events_ = -1, memory_control_ = -1;
  bool open_controls();
  void close_controls();
  const char* cgroup_ = "";
  bool killed_ = false;      // the cgroup was killed as a whole since it was made
  bool quiet_pass_ = false;  // the last step found no new process and all stopped
};

}  // namespace dtrain::shim
