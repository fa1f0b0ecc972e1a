// A copy of the task's output for the journal (journald's stream of this service). Best effort: what the journal does
// not take at once is left out and counted, and a line says so later. The log files have all of it.
#pragma once

#include "agent/dtrain-shim/sys.h"
#include "common/task/log_format.h"

namespace dtrain::shim {

class JournalCopy {
 public:
  void open(int fd) { fd_ = fd; }  // -1: there is no journal
  void append(task::LogStream stream, const char* bytes, size_t size);
  void end_line();  // after an attempt, so that its last line is not joined with the next attempt's first

 private:
  bool note_drops();
  size_t send_some(const char* bytes, size_t size);
  int fd_ = -1;
  bool line_open_ = false;
  task::LogStream stream_ = task::LogStream::out;  // of the newest piece
  uint64_t dropped_ = 0;                           // bytes dropped and not reported yet
};

}  // namespace dtrain::shim
