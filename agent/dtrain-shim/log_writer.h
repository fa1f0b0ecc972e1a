// Appends a task's output to rotated files of the current directory, as common/task/log_format.h says.
// Never blocks the task and never fails: what finds no room is counted, and a line says so once there is room again, at the latest at the
// end of the attempt: for that line room is kept. A part of the disk is left free: the agent's ledger may lie on it, and what ends a task
// that prints without end must find room to be written down.
#pragma once

#include "agent/dtrain-shim/sys.h"
#include "common/task/log_format.h"

namespace dtrain::shim {

constexpr uint64_t kLeftFree = 64 << 20;   // bytes of the file system, for users who are not root
constexpr uint64_t kLeftFreePart = 32;     // but at most one such part of it

class LogWriter {
 public:
  // Files begin with log.<first>; a file is closed at `file_bytes`; the newest `files` are kept.
  void configure(uint32_t first, uint64_t file_bytes, uint32_t files);
  void append(task::LogStream stream, uint32_t attempt, const char* bytes, size_t size);
  // At the end of an attempt: the line about dropped bytes, if there are any.
  void note_drops(uint32_t attempt);
  uint64_t dropped_bytes() const { return dropped_total_; }

 private:
  // A file and how far behind its end the disk's room is its own already.
  struct File {
    int fd = -1;
    uint64_t at = 0, room = 0;
    bool reserve(uint64_t bytes);
  };
  bool rotate();
  bool leaves_room(size_t size);
  bool has_room(size_t size);
  bool store(task::LogStream stream, uint32_t attempt, const char* bytes, size_t size);
  void drop(size_t size);

  uint64_t file_bytes_ = 0;
  uint32_t files_ = 1;
  uint32_t number_ = 0;      // K of the next file to open
  File raw_, index_;
  bool in_line_ = false;     // the last byte stored ends no line
  uint64_t budget_ = 0;      // bytes to write until it is looked how much of the disk is free
  uint64_t dropped_ = 0;     // not yet said in the log
  uint64_t dropped_total_ = 0;
};

}  // namespace dtrain::shim
