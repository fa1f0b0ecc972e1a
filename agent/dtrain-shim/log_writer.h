// Appends a task's output to rotated files in the current directory, in the form of common/task/log_format.h. Never
// blocks the task and never fails: output that finds no room is counted, and a line says so once there is room again,
// or at the latest at the end of the attempt, for which room is kept. Part of the disk is left free, because the
// agent's ledger may lie on it, and the end of a task that prints endlessly must be recorded.
#pragma once

#include "agent/dtrain-shim/sys.h"
#include "common/task/log_format.h"

namespace dtrain::shim {

constexpr uint64_t kLeftFree = 64 << 20;  // bytes of the file system that are left free for users other than root
constexpr uint64_t kLeftFreePart = 32;    // but at most this part of it (one 32nd)

// What the index records of output.
struct LogSource {
  task::LogStream stream{};
  uint16_t rank = 0;  // as task::LogIndexRecord
  uint32_t attempt = 0;
};

class LogWriter {
 public:
  // The first file is log.<first>; a file is closed at `file_bytes`; the newest files are kept, together as much
  // as `files` full ones hold.
  void configure(uint32_t first, uint64_t file_bytes, uint32_t files);
  void append(const LogSource& source, const char* bytes, size_t size);
  // At the end of an attempt: writes the line about dropped bytes, if there are any.
  void note_drops(uint32_t attempt);
  uint64_t dropped_bytes() const { return dropped_total_; }

 private:
  // A file, and how much disk space after its end is reserved for it.
  struct File {
    int fd = -1;
    uint64_t at = 0, room = 0;
    bool reserve(uint64_t bytes);
  };
  void forget_oldest();
  bool rotate();
  bool leaves_room(size_t size);
  bool has_room(size_t size);
  bool store(const LogSource& source, const char* bytes, size_t size);
  void drop(size_t size);

  uint64_t file_bytes_ = 0;
  uint32_t files_ = 1;
  uint32_t number_ = 0;  // K of the next file to open
  File raw_, index_;
  bool in_line_ = false;  // the last stored byte did not end a line
  uint64_t budget_ = 0;   // bytes to write before free space is checked again
  uint64_t dropped_ = 0;  // bytes dropped and not reported in the log yet
  uint64_t dropped_total_ = 0;
};

}  // namespace dtrain::shim
