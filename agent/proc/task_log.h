// TaskLog: the wanted output of one task over its assignments (generations) and attempts. One part of a
// LogStream.
//
// Assignments are read one after the other; the next one begins when it has a log file of its own (nothing of
// the former runs any more then) or when everything ended.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/proc/log_reader.h"
#include "agent/proc/log_tail.h"
#include "common/base/ids.h"
#include "common/wire/control.h"

namespace dtrain::proc {

class TaskLog {
 public:
  enum class Step : unsigned char {
    segment,   // segment() has bytes
    idle,      // nothing (more) at the moment; only files that change can alter that
    busy,      // bounded work was done; call again
    finished,  // everything was read and nothing more will come
  };

  TaskLog(std::string tasks_dir, TaskId task, const wire::LogsRequest& query);

  void add_source(const AssignmentId& id);  // known ones are ignored
  void end() { ended_ = true; }             // no assignment writes any more, and none will be added
  Result<Step> step();

  const TaskId& task() const { return task_; }
  const LogSegment& segment() const { return reader_->segment(); }
  Status read(std::size_t max, std::string& out) { return reader_->read(max, out); }
  Generation generation() const { return sources_[source_].generation; }
  // Newest wanted attempt that was come across, 0: none yet.
  AttemptNumber attempt() const;
  // How many files rotation took away before they were read, since the last call.
  std::uint64_t take_lost_files();

 private:
  std::string dir_of(std::size_t source) const { return tasks_dir_ + "/" + sources_[source].text(); }
  Status choose_attempts();
  Result<Step> find_tail();
  Result<bool> later_source_began();
  void open_reader(const LogPosition& start);

  std::string tasks_dir_;
  TaskId task_;
  wire::LogsRequest query_;
  std::vector<AssignmentId> sources_;  // by generation
  bool ended_ = false;

  bool chosen_ = false;
  LogFilter filter_;
  std::unique_ptr<TailFinder> tail_;
  bool tail_done_ = false;
  std::size_t source_ = 0;  // sources_[source_] is being read
  std::unique_ptr<LogReader> reader_;
  bool last_look_ = false;   // the source is known to be complete: read to its end, then go on
  AttemptNumber carry_ = 0;  // last attempt of the sources before
  std::uint64_t lost_taken_ = 0;
};

}  // namespace dtrain::proc
