// Descriptors that a task passes to its shim (SCM_RIGHTS). Whoever drops a file last does what its close costs, and that may take as
// long as the task likes: SO_LINGER, a file system that the task itself serves. So each message that carries some is held by a
// short-lived child when it is dropped here: the child is the last to have them, and its exit, which no socket makes linger, may
// hang without harm.
#pragma once

#include "agent/dtrain-shim/sys.h"

namespace dtrain::shim {

inline constexpr int kMostHolders = 8;            // such children at a time; messages beyond wait
inline constexpr size_t kPassedDescriptors = 253;  // of one message: SCM_MAX_FD

class Passed {
 public:
  // Drops the first message that waits in the socket. False: not now, it stays.
  bool drop_message(int socket);
  // Some still hang.
  bool holds() { return reap() > 0; }

 private:
  int reap();
  int holders_ = 0;
};

}  // namespace dtrain::shim
