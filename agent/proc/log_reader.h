// LogReader: the output of one assignment, forwards, from the files of common/task/log_format.h.
//
// Every byte of the raw files is delivered once and in order, whatever the index says: the reader moves a
// position through log.K, and an index record only tells attempt, stream and time of the bytes up to its end.
// So a record that is missing, torn, doubled or nonsense costs labels, never bytes: bytes that no record
// covers count as stdout of the last attempt. While the writer lives, bytes behind the last record are held
// back, as their record is about to come; they are given out once log.K+1 exists or finish() was called.
//
// A file that rotation removes while it is read stays readable (its descriptor is open); files removed before
// they were opened are skipped and counted in lost_files(). A record of length 0 only announces its attempt.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/unique_fd.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/task/log_format.h"

namespace dtrain::proc {

// Which bytes are wanted. Others are passed over without reading them.
struct LogFilter {
  AttemptNumber first = 0;
  AttemptNumber last = std::numeric_limits<AttemptNumber>::max();
  std::int64_t since_ms = 0;  // wall clock, ms since the epoch
  bool stderr_only = false;
  std::uint32_t rank = 0;  // as task::LogIndexRecord; 0: of all
};

// Consecutive bytes of one attempt and stream that arrived together.
struct LogSegment {
  std::uint64_t begin = 0, end = 0;  // in the raw file
  AttemptNumber attempt = 0;
  task::LogStream stream = task::LogStream::out;
  std::uint16_t rank = 0;
  std::int64_t time_ms = 0;  // wall clock of arrival

  bool matches(const LogFilter& filter) const {
    return attempt >= filter.first && attempt <= filter.last && time_ms >= filter.since_ms &&
           (!filter.stderr_only || stream == task::LogStream::err) && (filter.rank == 0 || filter.rank == rank);
  }
};

// Where to start: at byte `byte` of log.`file`, with the index read from its byte `index` on.
struct LogPosition {
  std::uint64_t file = 0;
  std::uint64_t index = 0;
  std::uint64_t byte = 0;
  AttemptNumber attempt = 0;  // of bytes without a record
};

// One log.K with its index, open.
class LogFile {
 public:
  // nullopt: there is no such file. A missing index is an empty one.
  static Result<std::optional<LogFile>> open(const std::string& dir, std::uint64_t number);

  std::uint64_t number() const { return number_; }
  Result<struct stat> data_stat() const;
  Result<std::uint64_t> index_size();  // bytes; opens an index that has appeared meanwhile
  // Appends at most `max` bytes from `offset` of the raw file. Fewer only at its end.
  Status read_data(std::uint64_t offset, std::size_t max, std::string& out) const;
  // Reads up to `max` whole records from byte `offset` of the index.
  Result<std::vector<task::LogIndexRecord>> read_index(std::uint64_t offset, std::size_t max);

 private:
  LogFile(std::string dir, std::uint64_t number) : dir_(std::move(dir)), number_(number) {}
  std::string dir_;
  std::uint64_t number_;
  UniqueFd data_, index_;
};

// Numbers K of the log files in `dir`, ascending. A missing directory has none.
Result<std::vector<std::uint64_t>> list_log_files(const std::string& dir);

// A record that can be true of a raw file of `size` bytes.
bool plausible(const task::LogIndexRecord& record, std::uint64_t size);

// Attempt of the newest record in `dir`; nullopt: no record at all.
Result<std::optional<AttemptNumber>> newest_attempt(const std::string& dir);

class LogReader {
 public:
  enum class Step : unsigned char {
    segment,  // segment() has bytes to read
    idle,     // there is nothing more at the moment
    busy,     // bounded work was done; call again
  };

  LogReader(std::string dir, LogFilter filter, LogPosition start = {});

  // Moves to the next wanted bytes; stays while the present segment is not used up.
  Result<Step> step();
  const LogSegment& segment() const { return segment_; }
  // Appends at most `max` bytes of the segment.
  Status read(std::size_t max, std::string& out);
  // Nothing more will be written: bytes without a record are given out too, and `idle` then means the end.
  void finish() { finished_ = true; }

  AttemptNumber attempt() const { return attempt_; }  // the newest that was seen, wanted or not
  std::uint64_t lost_files() const { return lost_files_; }

 private:
  Result<bool> open_next();
  Result<bool> successor_exists();
  Result<bool> next_record();
  Status take_record(const task::LogIndexRecord& record);
  Status refresh_size();
  bool skip_whole_file(LogFile& file, const struct stat& info);

  std::string dir_;
  LogFilter filter_;
  std::uint64_t next_file_;
  std::optional<LogPosition> start_;
  bool opened_any_ = false;
  bool finished_ = false;
  std::uint64_t lost_files_ = 0;
  AttemptNumber attempt_ = 0;

  std::optional<LogFile> file_;
  std::uint64_t size_ = 0;                   // of the raw file, as last seen
  std::int64_t modified_ms_ = 0;             // likewise
  std::uint64_t position_ = 0;               // every byte before it is delivered or passed over
  std::uint64_t index_at_ = 0;               // every record before it is used
  std::optional<std::uint64_t> complete_;    // size at which the raw file was found complete
  std::vector<task::LogIndexRecord> block_;  // records read ahead
  std::size_t block_used_ = 0;
  LogSegment segment_;
};

}  // namespace dtrain::proc
