// The main processes of an attempt: one, or one for each rank of a task that has several; with the pipes of their output, and the last
// that each wrote to stderr. An attempt has them all at once, so one table in memory that costs nothing until it is used.
#pragma once

#include "agent/dtrain-shim/launch.h"
#include "agent/dtrain-shim/standbys.h"
#include "common/task/log_format.h"

namespace dtrain::shim {

struct MainProcess {
  int pid = 0;               // 0: it has ended, or was never started
  int output[2] = {-1, -1};  // read ends; index: task::LogStream
  uint16_t tail_bytes = 0;
};

struct ProcessStart {
  int error = 0;  // errno: there is no such process
  uint8_t step = 0;
  int step_error = 0;  // as ChildPlan: the program was not executed, and the process is about to end
  bool warm = false;   // it was a standby
};

class Processes {
 public:
  uint32_t count() const { return count_; }
  MainProcess& at(uint32_t index) { return table_[index]; }
  // The text at its end, `at(index).tail_bytes` long.
  const char* tail(uint32_t index) const { return tails_[index]; }
  void keep_tail(uint32_t index, const char* bytes, size_t size);

  void begin() { count_ = 0; }
  // Starts the next one, in the environment of its rank; or the standby of that rank becomes it.
  ProcessStart add(Launch& launch, Standbys& standbys, int cgroup, int parent);
  // The process with that id, which has ended; count(): it is none of them.
  uint32_t take(int pid);
  bool any_left() const;
  void signal(int number) const;

 private:
  static MainProcess table_[kMostRanks];
  static char tails_[kMostRanks][kTailBytes];
  uint32_t count_ = 0;
};

}  // namespace dtrain::shim
