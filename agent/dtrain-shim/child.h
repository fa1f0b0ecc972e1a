// Turns a new process into the task, from clone3 to execve.
#pragma once

#include "agent/dtrain-shim/launch.h"

namespace dtrain::shim {

inline constexpr size_t kInterpreterBytes = 256;  // the kernel reads no more of the line

struct ChildPlan {
  const Launch* launch = nullptr;
  char** argv = nullptr;   // in place of the launch file's
  int in = -1;             // becomes stdin; -1: it stays /dev/null
  int out = -1, err = -1;  // become stdout and stderr
  int cgroup = -1;         // directory of the task's v2 cgroup; -1 none
  int parent = 0;          // pid of the shim
  int standby = -1;        // a standby's end of its socket, which becomes kStandbySocket; -1: it is the task
  // Result, written by the child: where it failed, if it did.
  volatile uint8_t step = 0;  // Step
  volatile int error = 0;
  char interpreter[kInterpreterBytes] = {};  // at Step::interpret
};

// Returns the pid, or -errno when no process could be made. When this returns, the process has executed its program,
// or it has ended and plan.step says where.
int spawn(ChildPlan& plan);

}  // namespace dtrain::shim
