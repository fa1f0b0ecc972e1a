// Processes that wait, with what the task's program imports imported, to become the main processes of the next attempt
// (docs/warm-standby.md; what they run and how they are spoken to: agent/dtrain-warm/dtrain-warm.py). One for each main process. A shim
// that was started with kStandby starts them, stays (docs/shim.md, Spare shims), and uses them in the first attempt of the assignment that
// it then serves: so the tables outlive the shim's other data.
#pragma once

#include "agent/dtrain-shim/launch.h"

namespace dtrain::shim {

class Standbys {
 public:
  uint32_t count() const { return count_; }
  int socket(uint32_t index) const { return sockets_[index]; }

  // Starts one for each process of an attempt. False: errno says why, and there are none.
  bool start(Launch& launch, int cgroup, int parent);
  // Its socket has something to read. True: that is its word that it is ready. False: it cannot be used, cold() says why.
  bool answered(uint32_t index);
  void note_ready() { ++ready_; }
  bool all_ready() const { return count_ > 0 && ready_ == count_; }

  // Makes it a main process of the attempt that `launch` has the variables of, with these ends of pipes. Returns its pid; 0: there is none
  // that could, and cold() says why, if there was one.
  int become(uint32_t index, const Launch& launch, int out, int err);
  // That process has ended and was waited for: its number may be another's by now.
  void ended(int pid);
  // None is needed any more: those that are left end.
  void dismiss();

  // Waits, without a limit, for something to read at `socket`, with all but these signals let through. False: a standby has ended
  // meanwhile.
  static bool wait_with(int socket, uint64_t blocked);

  const char* cold() const { return cold_.c_str(); }
  // Closes every descriptor above `last`, except their sockets.
  bool close_others(int last) const;

 private:
  bool send_start(int socket, const Launch& launch, int out, int err) const;
  int fail(uint32_t index, const char* cause);
  static int pids_[kMostRanks];  // 0: it is used, or gone
  static int sockets_[kMostRanks];
  static uint32_t count_, ready_;
  Text<kColdBytes> cold_;
};

}  // namespace dtrain::shim
