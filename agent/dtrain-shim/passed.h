// Descriptors that a task passes to its shim (SCM_RIGHTS). Whoever closes a file last waits for its close, which may
// take as long as the task likes (SO_LINGER, a file system that the task itself serves). So a message with
// descriptors is held by a short-lived child while it is dropped here: the child is the last to have them, and its
// exit, which no socket makes linger, may hang without harm.
#pragma once

#include "agent/dtrain-shim/sys.h"

namespace dtrain::shim {

inline constexpr int kMostHolders = 8;             // such children at a time; further messages wait
inline constexpr size_t kPassedDescriptors = 253;  // in one message: SCM_MAX_FD

class Passed {
 public:
  // Drops the first message in the socket. Returns false if that is not possible now; the message stays.
  bool drop_message(int socket);
  // True while some children still hang.
  bool holds() { return reap() > 0; }

 private:
  int reap();
  int holders_ = 0;
};

}  // namespace dtrain::shim
