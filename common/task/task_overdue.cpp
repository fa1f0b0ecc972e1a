// For how long a task may be silent (watchdog), not up (startTimeout), and running (runTimeout).
#include <algorithm>

#include "common/base/duration_text.h"
#include "common/task/task.h"

namespace dtrain::task {

// The watchdog and startTimeout did not run until now.
void Task::stood(Instant now) { last_sign_of_life_ = not_ready_since_ = now; }

// When the task is killed unless it shows a sign of life before.
Instant Task::overdue_at() const {
  const bool runs = phase_ == Phase::running;
  Instant at = runs && role().watchdog > 0ns ? last_sign_of_life_ + role().watchdog : kNever;
  // A task that waits for the grant of its lease is not waiting for its program.
  const bool starts = runs ? role().notify && !ready_ : phase_ == Phase::starting && lease_ == 0ns;
  if (starts && role().start_timeout > 0ns) at = std::min(at, not_ready_since_ + role().start_timeout);
  if (runs && role().run_timeout > 0ns) at = std::min(at, started_ + role().run_timeout);
  return at;
}

void Task::kill_overdue(Instant now) {
  if (killed_ || now < overdue_at()) return;
  const bool silent = role().watchdog > 0ns && now >= last_sign_of_life_ + role().watchdog && phase_ == Phase::running;
  const std::string wanted = role().notify ? "ready" : "running";
  const bool long_enough = role().run_timeout > 0ns && now >= started_ + role().run_timeout && phase_ == Phase::running;
  overdue_ = silent        ? "watchdog: silent for " + duration_text(role().watchdog)
             : long_enough ? "runTimeout: ran for " + duration_text(role().run_timeout)
                           : "startTimeout: not " + wanted + " within " + duration_text(role().start_timeout);
  killed_ = true;
  actions_.kill(order_.id);
}

}  // namespace dtrain::task
