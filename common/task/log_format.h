// How a task's output lies on disk: raw bytes in log.K (K counts up; K = 0 first), and beside it log.K.idx,
// one record per write, appended after the bytes. Raw files can be read with any pager; the index tells
// stream, attempt and time. Bytes behind the last index record (a shim killed between the two writes) count
// as stdout of the last attempt. A file that has reached its size is followed by log.K+1; only the newest
// `files` files are kept.
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
  std::uint8_t reserved[7];
};
static_assert(sizeof(LogIndexRecord) == 32);

}  // namespace dtrain::task
