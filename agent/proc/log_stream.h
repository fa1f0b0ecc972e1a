// LogStream: what one `dtrainctl logs` gets, cut into messages. Pulled by its owner (LogStreams); it does no
// waiting of its own.
//
// One task, or one rank of it: the bytes as they are, stdout and stderr in order of arrival. The whole job, and a task with ranks: the
// tasks and ranks merged by time of arrival, each chunk cut behind a line end, so that prefixed lines of several tasks never mix; a
// line longer than kPartialLineBytes, or that finds kPartialBytesOfStream kept, is cut there, and what has no line end is sent when its
// stream, attempt or task ends. (So a chunk that does not end with '\n' is followed by something else, and the client ends the line.) Only
// a progress bar, a line with carriage returns, is sent to followers as it grows, in chunks that say that their last line is open; an empty
// chunk that does not says that it ended without '\n'. --tail counts per task.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/proc/outlet.h"
#include "agent/proc/task_log.h"
#include "common/node/effect.h"

namespace dtrain::proc {

class LogStream {
 public:
  enum class State : unsigned char {
    busy,      // call next() again, with or without a chunk in the answer
    waiting,   // until touched() or update()
    finished,  // everything was sent
  };
  struct Answer {
    State state = State::busy;
    std::optional<wire::LogChunk> chunk;  // at most kStreamChunkBytes + kPartialLineBytes
  };

  static Result<LogStream> open(std::string tasks_dir, const node::OpenLog& effect);

  void update(const std::vector<AssignmentId>& sources, bool ended);
  // Files of this assignment changed.
  void touched(const AssignmentId& id);
  void touched_all();
  Result<Answer> next();

  bool follows() const { return query_.follow; }
  const std::set<AssignmentId>& sources() const { return sources_; }

 private:
  struct PartialLine {
    std::string bytes;
    std::int64_t time_ms = 0;
    bool open = false;  // its first part was sent
  };
  using Source = std::pair<std::uint32_t, std::size_t>;  // rank as in wire::LogChunk, and 0 for stdout, 1 for stderr
  struct Task {
    std::unique_ptr<TaskLog> log;
    bool finished = false;
    AttemptNumber attempt = 0;  // announced or first
    Generation generation = 0;  // of the partial lines
    std::map<Source, PartialLine> partial;
  };

  LogStream(std::string tasks_dir, wire::LogsRequest query);
  void add_sources(const std::vector<AssignmentId>& sources);
  void add_older(const std::vector<AssignmentId>& listed);
  Status look_at(std::size_t task);
  void announce_attempt(std::size_t task);
  void flush(Task& task, Source source);
  void flush_all(Task& task);
  bool keeps_lines_whole(const wire::LogChunk& chunk) const { return query_.task.empty() || (chunk.rank > 0 && query_.rank == 0); }
  Status read_chunk(std::size_t task);
  void cut_at_line_end(Task& task, wire::LogChunk& chunk);

  std::string tasks_dir_;
  wire::LogsRequest query_;
  std::set<AssignmentId> sources_;
  bool ended_ = false;
  std::vector<Task> tasks_;
  std::set<std::size_t> unlooked_;                        // tasks whose next bytes are not known yet
  std::set<std::pair<std::int64_t, std::size_t>> ready_;  // tasks with bytes, by time of arrival
  std::size_t kept_ = 0;                                  // bytes of all partial lines
  std::deque<wire::LogChunk> out_;                        // made, not yet handed over: a few at most
};

}  // namespace dtrain::proc
