// When a job ends by itself: its success, and the end of its time.
#include <algorithm>

#include "common/cluster/job_transition.h"
#include "common/job/framework.h"

namespace dtrain::cluster {

bool JobTransition::check_success() {
  if (const auto decider = job::deciding_task(job_.spec)) {
    const auto it = job_.tasks.find(*decider);
    return it != job_.tasks.end() && it->second.completed;
  }
  if (job_.spec.policy.success_percent > 0) return enough_succeeded(false);
  // Some tasks still wait for room.
  if (begins_in_parts(job_, ledger_.state_.version) &&
      std::ranges::any_of(whole_tasks(job_), [this](const TaskId& id) { return !job_.tasks.contains(id); }))
    return false;
  bool any = false;
  for (const auto& [id, t] : job_.tasks) {
    if (!counts_for_success(id) || !wanted(id)) continue;
    if (!t.completed) return false;
    any = true;
  }
  return any;
}

// Where no task decides alone: the workers if successPolicy says so, else every role that ends by itself.
bool JobTransition::counts_for_success(const TaskId& task) const {
  const job::RoleRules& rules = job::role_rules(job_.spec.framework, task.role);
  return job_.spec.policy.success_policy == job::SuccessPolicy::all_workers ? rules.works : rules.ends;
}

// policy.successPercent: true once enough have succeeded, or with `may_yet` if enough can.
bool JobTransition::enough_succeeded(bool may_yet) const {
  std::uint64_t all = 0, given_up = 0, done = 0;
  for (const TaskId& id : whole_tasks(job_)) {
    if (!counts_for_success(id) || !wanted(id)) continue;
    ++all;
    const auto task = job_.tasks.find(id);
    if (task == job_.tasks.end()) continue;  // it waits for room
    done += task->second.completed ? 1 : 0;
    given_up += task->second.given_up ? 1 : 0;
  }
  const std::uint64_t most = may_yet ? all - given_up : done;
  return most > 0 && most * job::kAllPercent >= all * job_.spec.policy.success_percent;
}

// No task of the job is restarted any more, so it keeps its place for nobody.
bool JobTransition::ended_before_deadline() const {
  return job_.signalled && job_.goal == Goal::run && job_.halt == Halt::none && !job_.needs_generation && !is_final(job_.state) &&
         !job_.tasks.empty() && job_.nothing_runs() && std::ranges::none_of(job_.tasks, [](const auto& t) { return t.second.lost; });
}

// policy.waitFor: roles on which the success does not depend may still finish their work, such as an evaluator with
// the last checkpoint.
bool JobTransition::waits_for_roles() {
  const Duration now = ledger_.state_.elapsed;
  std::optional<Duration> until;
  for (const auto& [role, most] : job_.spec.policy.wait_for)
    for (const auto& [id, t] : job_.tasks)
      if (id.role == role && wanted(id) && !t.completed && !t.given_up && !t.ended) until = std::max(until.value_or(0ns), most);
  if (!until) return false;
  if (!job_.evaluators_until) job_.evaluators_until = now + *until;
  return now < *job_.evaluators_until;
}

}  // namespace dtrain::cluster
