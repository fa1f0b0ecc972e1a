// When and what the ledger is told about a task.
#include <algorithm>

#include "common/task/task.h"

namespace dtrain::task {

void Task::has_news() {
  dirty_ = true;
  gate_.has_news(order_.id);
}

void Task::watch_preparation(Instant now) {
  if (!preparing() || !untold_) return;
  if (tell_at_ == kNever) tell_at_ = now + kTellStagingAfter;
  if (now >= tell_at_) has_news();
}

std::uint32_t Task::unreported_restarts() const {
  const AttemptNumber known = std::max(order_.known_attempt, order_.first_attempt);
  // The next restart of a task in back-off is counted already.
  const AttemptNumber mine = attempt_ + (phase_ == Phase::backoff && !exit_on_request_ && !spared_ ? 1 : 0);
  const AttemptNumber spared = spared_ && exit_attempt_ + 1 == attempt_ ? 1 : 0;
  return mine > known + spared ? mine - known - spared : 0;
}

job::TaskObservation Task::observation() const {
  using job::TaskState;
  job::TaskObservation o;
  o.id = order_.id;
  o.attempt = attempt_;
  o.pid = pid_;
  o.started = started_wall_;
  o.ready = ready_;
  o.ended = phase_ == Phase::over;
  o.exit_attempt = exit_attempt_;
  o.exit = exit_;
  // The attempt before was ended by an order, but nobody ordered that another cannot begin.
  o.on_request = outcome_ == Outcome::on_request || (exit_on_request_ && !stage_failed_);
  o.stage_failed = stage_failed_;
  o.stage_error = stage_error_;
  o.process_stopped = phase_ == Phase::running && reason_.empty() && !process_stopped_.empty();
  o.reason = o.process_stopped ? process_stopped_ : reason_;
  o.lease = lease_;
  o.lease_frozen = lease_frozen_ && !order_.freeze;
  o.spared = spared_;
  o.stood_still = stood_still_;
  o.host_refused = host_refused_;
  o.standby = standby_;
  o.standby_cause = standby_cause_;
  switch (phase_) {
    case Phase::staging:
    case Phase::launching: o.state = TaskState::fetching; break;
    case Phase::staged: o.state = TaskState::staged; break;
    case Phase::starting: o.state = TaskState::starting; break;
    case Phase::running: o.state = stop_announced_ ? TaskState::stopping : frozen() ? TaskState::frozen : TaskState::running; break;
    case Phase::backoff: o.state = TaskState::backoff; break;
    case Phase::ending:
    case Phase::reclaiming:
    case Phase::over:
      o.state = outcome_ == Outcome::succeeded ? TaskState::succeeded
                : outcome_ == Outcome::failed  ? TaskState::failed
                                               : TaskState::stopping;
      break;
  }
  return o;
}

job::TaskObservation Task::take_observation() {
  dirty_ = false;
  untold_ = !preparing();
  tell_at_ = kNever;
  auto told = observation();
  standby_ = job::StandbyNews::none;
  standby_cause_.clear();
  return told;
}

void Task::process_stopped(const std::string& why) {
  if (why != process_stopped_) has_news();
  process_stopped_ = why;
}

void Task::standby_told(job::StandbyNews news, const std::string& cause) {
  standby_ = news;
  standby_cause_ = cause;
  has_news();
}

}  // namespace dtrain::task
