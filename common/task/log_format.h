// The form of a task's output on disk: raw bytes in log.K (K counts up from 0), and beside it log.K.idx with one
// record for each write, appended after the bytes. Any pager can read the raw files; the index has stream, attempt
// and time. Bytes after the last index record (the shim was killed between the two writes) count as stdout of the
// last attempt. A file that has reached its size is followed by log.K+1; only the newest `files` files are kept.
#pragma once

#include <cstdint>

namespace dtrain::task {

enum class LogStream : std::uint8_t { out = 0, err = 1 };

struct LogIndexRecord {  // 32 bytes, little-endian hosts only
  std::uint64_t offset;  // in log.K
  std::int64_t wall_ns;  // CLOCK_REALTIME when the bytes arrived
  std::uint32_t length;
  std::uint32_t attempt;
  std::uint8_t stream;  // LogStream
  std::uint8_t reserved;
  std::uint16_t rank;  // of a task with ranks: one more than the number of the one that wrote it within its task; else 0
  std::uint8_t reserved2[4];
};
static_assert(sizeof(LogIndexRecord) == 32);

}  // namespace dtrain::task
