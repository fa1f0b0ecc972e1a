// TailFinder: where the last N lines of a task's output begin, searched from the end: it reads the lines it
// is asked for and no more. Works in bounded steps, so that a search over gigabytes does not hold up the
// agent.
//
// A line ends with '\n'; bytes behind the last one count as a line. Where the index is damaged the count may
// be off by the bytes concerned; reading from the answer still gives each byte once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/proc/log_reader.h"

namespace dtrain::proc {

class TailFinder {
 public:
  // `dirs`: the task's assignment directories, oldest first. `unindexed`: bytes behind the last record of all
  // count too (nothing more is being written).
  TailFinder(std::vector<std::string> dirs, LogFilter filter, std::uint64_t lines, bool unindexed);

  // Does a bounded piece of work. True: found, the answer is there.
  Result<bool> step();
  std::size_t dir() const { return answer_dir_; }          // index into `dirs`
  const LogPosition& position() const { return answer_; }  // {}: from the beginning of that directory

 private:
  struct Piece {
    LogSegment segment;
    LogPosition at;  // reading from here begins with the segment
  };
  Result<bool> open_previous();
  Status load_pieces();
  Status open_tail_piece();
  Result<bool> count_lines();
  void answer(const LogPosition& position);

  std::vector<std::string> dirs_;
  LogFilter filter_;
  std::uint64_t lines_;
  bool unindexed_;

  std::size_t dir_;                     // dirs_[dir_ - 1] is being looked at
  std::vector<std::uint64_t> numbers_;  // its files not yet looked at
  bool listed_ = false;
  bool newest_ = true;  // the file looked at is the newest of all
  std::optional<LogFile> file_;
  std::uint64_t size_ = 0;
  std::int64_t modified_ms_ = 0;
  std::uint64_t index_end_ = 0;  // records before it are not yet looked at
  std::vector<Piece> pieces_;    // of the block looked at, oldest first

  std::uint64_t seen_ = 0;  // line ends passed, the very last byte excepted
  bool any_byte_ = false;
  bool found_ = false;
  bool have_answer_ = false;
  std::size_t answer_dir_ = 0;
  LogPosition answer_;
};

}  // namespace dtrain::proc
