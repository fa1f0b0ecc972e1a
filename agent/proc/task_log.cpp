#include "agent/proc/task_log.h"

#include <algorithm>

#include "common/base/check.h"

namespace dtrain::proc {

TaskLog::TaskLog(std::string tasks_dir, TaskId task, const wire::LogsRequest& query)
    : tasks_dir_(std::move(tasks_dir)), task_(std::move(task)), query_(query) {}

void TaskLog::add_source(const AssignmentId& id) {
  const auto at = std::lower_bound(sources_.begin(), sources_.end(), id,
                                   [](const AssignmentId& a, const AssignmentId& b) { return a.generation < b.generation; });
  if (at != sources_.end() && at->generation == id.generation) return;
  // An attempt older than the one being read (it appeared late) cannot be put in front of what was sent already.
  if (chosen_ && static_cast<std::size_t>(at - sources_.begin()) <= source_ && !sources_.empty()) return;
  sources_.insert(at, id);
}

// The attempts that the query means, as far as they exist yet.
Status TaskLog::choose_attempts() {
  filter_.since_ms = query_.since_ms;
  filter_.stderr_only = query_.stderr_only;
  filter_.rank = query_.rank;
  if (query_.all_attempts) return {};
  AttemptNumber latest = 0;
  for (std::size_t i = sources_.size(); i > 0 && latest == 0; --i) {
    const auto newest = newest_attempt(dir_of(i - 1));
    if (!newest) return fail(newest.error());
    latest = newest->value_or(0);
  }
  const bool one_task = !query_.task.empty();  // of a whole job, those that have had the attempt are shown
  const std::string next = "dtrainctl logs --attempt all shows every attempt";
  if (query_.attempt > 0) {
    // This host alone does not know which is the latest.
    if (one_task && !query_.follow && query_.attempt > latest)
      return fail(ErrorCode::not_found,
                  "could not read attempt " + std::to_string(query_.attempt) + " of " + task_.text() + ": there is no output of it", next);
    filter_.first = filter_.last = query_.attempt;
  } else if (query_.previous) {
    if (latest <= 1 && one_task)
      return fail(ErrorCode::not_found,
                  "could not read the previous attempt of " + task_.text() + ": it has had no more than one with output", next);
    filter_.first = filter_.last = latest > 1 ? latest - 1 : 0;
  } else if (latest > 0) {
    filter_.first = latest;
    if (!query_.follow) filter_.last = latest;
  }
  return {};
}

void TaskLog::open_reader(const LogPosition& start) {
  reader_ = std::make_unique<LogReader>(dir_of(source_), filter_, start);
  last_look_ = false;
  lost_taken_ = 0;
}

Result<TaskLog::Step> TaskLog::find_tail() {
  if (!tail_) {
    std::vector<std::string> dirs;
    for (std::size_t i = 0; i < sources_.size(); ++i) dirs.push_back(dir_of(i));
    tail_ = std::make_unique<TailFinder>(std::move(dirs), filter_, static_cast<std::uint64_t>(query_.tail), ended_ || !query_.follow);
  }
  const auto found = tail_->step();
  if (!found) return fail(found.error());
  if (*found) {
    source_ = tail_->dir();
    carry_ = tail_->position().attempt;
    if (source_ < sources_.size()) open_reader(tail_->position());
    tail_.reset();
    tail_done_ = true;
  }
  return Step::busy;
}

Result<bool> TaskLog::later_source_began() {
  for (std::size_t i = source_ + 1; i < sources_.size(); ++i) {
    const auto files = list_log_files(dir_of(i));
    if (!files) return fail(files.error());
    if (!files->empty()) return true;
  }
  return false;
}

Result<TaskLog::Step> TaskLog::step() {
  if (!chosen_) {
    // Without any source the latest attempt is not known yet; the first that comes is followed.
    if (sources_.empty()) return ended_ || !query_.follow ? Step::finished : Step::idle;
    if (Status chosen = choose_attempts(); !chosen) return fail(chosen.error());
    chosen_ = true;
  }
  if (query_.tail >= 0 && !tail_done_) return find_tail();
  if (source_ >= sources_.size()) return ended_ || !query_.follow ? Step::finished : Step::idle;
  if (!reader_) open_reader(LogPosition{0, 0, 0, carry_});

  const auto step = reader_->step();
  if (!step) return fail(step.error());
  if (*step == LogReader::Step::segment) return Step::segment;
  if (reader_->attempt() > filter_.last) return Step::finished;  // the wanted attempt is over
  if (*step == LogReader::Step::busy) return Step::busy;
  if (!last_look_) {
    const bool over = ended_ || !query_.follow;
    if (!over) {
      const auto began = later_source_began();
      if (!began) return fail(began.error());
      if (!*began) return Step::idle;
    }
    last_look_ = true;
    reader_->finish();
    return Step::busy;
  }
  carry_ = reader_->attempt();
  if (source_ + 1 >= sources_.size()) return Step::finished;  // only the last source, without a successor, is followed
  ++source_;
  reader_.reset();
  return Step::busy;
}

AttemptNumber TaskLog::attempt() const {
  if (!reader_) return 0;
  const AttemptNumber attempt = reader_->attempt();
  return attempt >= filter_.first && attempt <= filter_.last ? attempt : 0;
}

std::uint64_t TaskLog::take_lost_files() {
  if (!reader_) return 0;
  const std::uint64_t lost = reader_->lost_files() - lost_taken_;
  lost_taken_ += lost;
  return lost;
}

}  // namespace dtrain::proc
