// Programs that another task of the job launched in this one (docs/launching.md): children of the shim like the main processes, so they
// are a part of the task and end with it at the latest. What the agent hears of them goes through a socket that each has.
#pragma once

#include "agent/dtrain-shim/launch.h"
#include "agent/dtrain-shim/tree.h"

namespace dtrain::shim {

class Launched {
 public:
  // Starts one, unless `not_now` is something else than `done`. Returns its index; kMostLaunched: it does not run, and its socket was told
  // why. Takes the socket from `fds`; the others stay the caller's.
  uint32_t begin(Outcome not_now, const Launch& launch, const CommandPacket& command, int (&fds)[kRunDescriptors], int cgroup, int parent);
  int socket(uint32_t index) const { return table_[index].socket; }
  // Its socket has signals for it, or its agent is gone: then it runs on.
  void signalled(uint32_t index, const Tree& tree);
  // That process has ended and was waited for: its number may be another's by now.
  void ended(int pid, int status, const Tree& tree);

 private:
  struct Program {
    int pid = 0;  // 0: none
    int socket = -1;
    bool hung_up = false;  // what is left of its session ends with it
  };
  static Program table_[kMostLaunched];
};

}  // namespace dtrain::shim
