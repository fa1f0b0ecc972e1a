// The main processes of an attempt: one, or one for each rank of a task that has several; with the pipes of their output, and the last
// that each wrote to stderr. An attempt has them all at once, so one table in memory that costs nothing until it is used.
#pragma once

#include "agent/dtrain-shim/launch.h"
#include "agent/dtrain-shim/standbys.h"
#include "common/task/lead.h"
#include "common/task/log_format.h"

namespace dtrain::shim {

struct MainProcess {
  int pid = 0;               // 0: it has ended, or was never started
  int output[2] = {-1, -1};  // read ends; index: task::LogStream
  uint16_t tail_bytes = 0;
  bool heard = false;      // it sent WATCHDOG=1 since all had
  int64_t heard_ns = 0;    // when it last did, CLOCK_BOOTTIME; 0: never
  int speaker = 0;         // the process that last sent it for this one; 0: none
  int64_t stopped_ns = 0;  // since when it is stopped by somebody's signal, CLOCK_REALTIME; 0: it is not
  bool held = false;       // it is stopped by hold()
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
  int pid(uint32_t index) const { return table_[index].pid; }
  // The text at its end, `at(index).tail_bytes` long.
  const char* tail(uint32_t index) const { return tails_[index]; }
  void keep_tail(uint32_t index, const char* bytes, size_t size);

  void begin() { count_ = 0; }
  // Starts the next one, in the environment of its rank; or the standby of that rank becomes it.
  ProcessStart add(Launch& launch, Standbys& standbys, int cgroup, int parent);
  // The process with that id, which has ended; count(): it is none of them.
  uint32_t take(int pid);
  bool any_left() const;
  // The process with that id was stopped by a signal, or continued.
  void stopped(int pid, int64_t since_ns);
  // Lets the others run only behind the first, and all once the lead is over.
  void keep_behind(task::Lead& lead, int64_t now_ns);
  // WATCHDOG=1 of that process, or of one that descends from a main process; of an unknown one it counts for all. Of more
  // new senders than can be looked at, none counts. True: since it last did,
  // all have sent it that ever do. So one that is silent is not covered by the others.
  bool heard(int pid, int64_t now_ns);
  // The first that stands still; else, where several send WATCHDOG=1, the one that did so least lately; count(): there is no such process.
  uint32_t stopped() const;
  uint32_t stuck() const;
  void signal(int number) const;

 private:
  void hold(MainProcess& process, bool on);
  static MainProcess table_[kMostRanks];
  static char tails_[kMostRanks][kTailBytes];
  uint32_t ancestor_of(int pid, int64_t now_ns);
  int64_t looks_since_ns_ = 0;  // how often /proc was looked at for a sender since then
  int looks_ = 0;
  uint32_t count_ = 0;
};

}  // namespace dtrain::shim
