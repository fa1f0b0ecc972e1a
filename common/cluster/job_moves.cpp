// How a job leaves its place: a drained host, for another job, or for a generation that a user asked for.
#include <algorithm>

#include "common/cluster/cluster_change.h"
#include "common/cluster/job_transition.h"

namespace dtrain::cluster {

std::vector<TaskId> tasks_on(const JobRecord& job, const NodeId& node) {
  std::vector<TaskId> there;
  for (const auto& [id, t] : job.tasks)
    if (!t.ended && t.place.node == node) there.push_back(id);
  return there;
}

bool can_leave(const JobRecord& job) {
  return job.goal == Goal::run && job.halt == Halt::none && !job.needs_generation && !is_final(job.state);
}

// If no ps or chief holds the training's state, a task that begins elsewhere would begin without it: so all tasks
// restart from the newest checkpoint.
bool move_alone(const job::JobSpec& spec, const std::vector<TaskId>& tasks) {
  const bool restores = spec.checkpoint && spec.checkpoint->restore != "never";
  const bool held = std::ranges::any_of(spec.roles, [&](const auto& role) { return job::is_stateful(spec, {role.first, 0}); });
  if (restores && !held) return false;
  return std::ranges::all_of(tasks, [&](const TaskId& id) { return scales_alone(spec, id.role) && !job::is_stateful(spec, id); });
}

// The whole generation ends with its grace and begins anew; meanwhile the job is not Running.
void JobTransition::leave_place(Halt why, const std::string& reason, bool next_generation) {
  halt(why, true, next_generation);
  job_.reason = reason;
  if (job_.state != JobState::recovering && job_.state != JobState::pending) set_state(JobState::restarting, reason);
}

// A user asked for the next generation: waiting for a state now means after this.
void JobTransition::begin_again(Halt why, const std::string& reason) {
  job_.passed.clear();
  leave_place(why, reason);
  if (job_.passed.empty()) job_.passed.push_back(job_.state);
}

bool JobTransition::move_off(const NodeId& node, const std::string& name, bool forced) {
  const std::vector<TaskId> there = tasks_on(job_, node);
  if (there.empty()) return false;
  const std::string cause = "host " + name + " is drained";
  if (is_final(job_.state)) {
    if (!forced || !job_.leave_running) return false;  // it is ending already
    job_.leave_running = false;
    job_.graceful = true;
    return true;
  }
  if (!can_leave(job_)) return false;
  if (!move_alone(job_.spec, there)) {
    leave_place(Halt::replace, cause);
    return true;
  }
  bool any = false;
  for (const TaskId& id : there) {
    TaskRecord& t = job_.tasks.at(id);
    if (t.moving) continue;
    any = t.moving = true;
    task_event(t, "moves", cause, {{"node", name}});
  }
  if (any) job_.reason = cause;
  return any;
}

bool JobTransition::make_room(const JobRecord& by) {
  if (!can_leave(job_) || job_.nothing_runs()) return false;
  job_.preempted = {by.id, by.spec.name};
  ++job_.preemptions;
  if (ledger_.broken_rule == "preempted-costs-nothing") ++job_.restarts;
  job_.run_started.reset();
  job_.signalled = false;
  leave_place(Halt::replace, "preempted by " + by.spec.name);
  ledger_.add_event(wall_, job_.id, "job.preempted", job_.spec.name, job_.reason,
                    {{"job", job_.spec.name}, {"generation", std::to_string(job_.generation)}, {"by", by.spec.name}});
  return true;
}

void JobTransition::moved(TaskRecord& task, const std::string& name) {
  if (!task.moving || !task.ended) return;
  task.moving = false;
  const bool goes_on = job_.goal == Goal::run && job_.halt == Halt::none && !is_final(job_.state);
  if (!goes_on || task.completed || task.given_up || !wanted(task.place.task)) return;
  task.lost = true;
  task.ready = false;
  task.pid = 0;
  task.state = TaskState::waiting;
  task.reason = "left host " + name + ", which is drained";
}

}  // namespace dtrain::cluster
