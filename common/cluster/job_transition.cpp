#include "common/cluster/job_transition.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/cluster/cluster_change.h"
#include "common/job/framework.h"
#include "common/job/recorded_error.h"
#include "common/job/restart.h"

namespace dtrain::cluster {
namespace {

// True for a task that runs, and for one that nobody misses: a dynamic worker that failed for good while the job goes
// on, and one that ended after the signal before the job's deadline.
bool counts_as_running(const JobRecord& job, const TaskRecord& t) {
  return t.completed || t.state == TaskState::running || t.state == TaskState::failed || (job.signalled && t.ended);
}

}  // namespace

std::uint64_t jitter_seed(const JobRecord& job) { return job.id * 1'000'003 + job.restarts + job.stage_failures; }

void JobTransition::task_event(const TaskRecord& task, std::string type, std::string reason, std::vector<EventField> details) {
  details.insert(details.begin(), {"generation", std::to_string(job_.generation)});
  details.insert(details.begin(), {"task", job_.spec.name + "/" + task.place.task.text()});
  ledger_.add_event(wall_, job_.id, "task." + std::move(type), job_.spec.name + "/" + task.place.task.text(), std::move(reason),
                    std::move(details));
}

void JobTransition::set_state(JobState state, std::string reason, std::vector<EventField> details) {
  cut(reason, limits::kReasonBytes);
  job_.reason = reason;
  if (job_.state == state && !job_.passed.empty()) return;
  job_.state = state;
  if (std::find(job_.passed.begin(), job_.passed.end(), state) == job_.passed.end()) job_.passed.push_back(state);
  for (auto& c : job_.conditions) c.status = false;
  const auto same = [&](const Condition& c) { return c.type == state; };
  if (auto it = std::find_if(job_.conditions.begin(), job_.conditions.end(), same); it != job_.conditions.end())
    *it = {state, true, wall_, reason};
  else job_.conditions.push_back({state, true, wall_, reason});
  details.insert(details.begin(), {"generation", std::to_string(job_.generation)});
  details.insert(details.begin(), {"job", job_.spec.name});
  ledger_.add_event(wall_, job_.id, "job." + std::string(to_string(state)), job_.spec.name, std::move(reason), std::move(details));
}

void JobTransition::begin_run() {
  job_.goal = Goal::run;
  job_.halt = Halt::none;
  job_.needs_generation = true;
  job_.not_before = 0ns;
  job_.stage_failures = 0;
  job_.restarts = job_.budget_spent = job_.recoveries_in_row = 0;
  job_.fruitless_restores = 0;
  job_.ports_lost = 0;
  job_.was_running = job_.leave_running = job_.signalled = false;
  job_.preempted = {};
  job_.refused_by.clear();
  job_.disturbed.reset();
  job_.charged.reset();
  job_.charges.clear();
  job_.doubted.reset();
  job_.evaluators_until.reset();
  job_.preemptions = 0;
  job_.run_started.reset();
  job_.finished_elapsed.reset();
  job_.finished = WallTime{};
  job_.first_fault.reset();
  job_.conditions.clear();
  job_.passed.clear();
  for (auto& [id, t] : job_.tasks) {
    t.completed = t.given_up = false;
    t.failures.clear();
    t.consecutive_failures = 0;
  }
  if (!job_.nothing_runs()) halt(Halt::rerun, true, true);
  set_state(JobState::pending, "");
}

void JobTransition::finish(JobState state, std::string reason, bool force_end) {
  if (is_final(job_.state)) return;
  job_.goal = Goal::end;
  job_.needs_generation = false;
  job_.halt = Halt::none;
  job_.graceful = true;
  job_.leave_running = !force_end && job_.spec.policy.clean_pod_policy == job::CleanPodPolicy::none;
  for (auto& [id, t] : job_.tasks) t.left_running = job_.leave_running && (t.state == TaskState::running || t.state == TaskState::starting);
  job_.refused_by.clear();
  job_.finished = wall_;
  job_.finished_elapsed = ledger_.state_.elapsed;
  set_state(state, std::move(reason));
}

void JobTransition::halt(Halt why, bool graceful, bool next_generation) {
  // A recovery during a graceful halt makes it a kill, never the other way round.
  if (job_.halt != Halt::none && !job_.graceful) graceful = false;
  if (why != Halt::recovery) job_.doubted.reset();
  job_.halt = why;
  job_.graceful = graceful;
  job_.needs_generation = next_generation;
}

void JobTransition::count_attempts(TaskRecord& task, const TaskObservation& seen) {
  if (seen.attempt <= task.attempt) return;
  // Attempts beyond the generation's first are restarts. If a report skips some, an earlier report was lost, and they count too.
  const AttemptNumber known = std::max(task.attempt, task.first_attempt);
  const AttemptNumber counted = std::max(known, task.granted_attempt);
  if (seen.attempt > counted) {
    const std::uint32_t restarts = seen.attempt - counted;
    const auto one_of_them = [&](AttemptNumber free) { return free >= known && free < seen.attempt; };
    job_.restarts += restarts;
    charge(restarts - (one_of_them(task.restart_attempt) || one_of_them(task.spared_attempt) ? 1 : 0));
  }
  task.attempt = seen.attempt;
  task.started_elapsed = ledger_.state_.elapsed;
}

void JobTransition::take_exit(TaskRecord& task, const TaskObservation& seen) {
  if (!seen.exit || seen.exit_attempt <= task.exit_attempt) return;
  task.exit = seen.exit;
  cut(task.exit->cause, limits::kReasonBytes);
  task.exit->recorded.reset();  // that of the first fault is kept
  task.exit_attempt = seen.exit_attempt;
  note_earlier_fault(task, seen);
  // After a halt began no exit counts, neither against a budget nor as the first fault.
  const bool ordered = seen.on_request || job_.goal != Goal::run || job_.halt != Halt::none || seen.exit_attempt == task.restart_attempt ||
                       seen.exit_attempt == task.spared_attempt;
  if (ordered || seen.exit->success()) return;
  const Duration now = ledger_.state_.elapsed;
  const auto& policy = job_.spec.policy;
  const bool healthy = task.reached_running && now - task.started_elapsed >= policy.restart_backoff.reset_after;
  task.consecutive_failures = healthy ? 1 : task.consecutive_failures + 1;
  const auto expired = [&](Duration at) { return now - at > policy.failure_threshold.within; };
  std::erase_if(task.failures, expired);
  task.failures.push_back(now);
  const std::size_t keep = std::max<std::size_t>(policy.failure_threshold.count, 1);
  if (task.failures.size() > keep) task.failures.erase(task.failures.begin());
  // The fault that people look for is the first of the newest generation that has one. Version 2 kept that of the run's first.
  const auto& known = job_.first_fault;
  if (!known || (known->generation < job_.generation && ledger_.state_.version >= 3))
    job_.first_fault = Fault{task.place.task, task.place.node, job_.generation, seen.exit_attempt, wall_, *seen.exit};
}

// When one rank dies, the others fail too, within milliseconds, and may be reported first. So the first fault is the one that came first by
// the clocks of the hosts, even if the job is being halted because of another. Before version 3 no exit has a time.
void JobTransition::note_earlier_fault(const TaskRecord& task, const TaskObservation& seen) {
  auto& known = job_.first_fault;
  const bool first = known && known->generation == job_.generation && known->exit.ended != WallTime{} && seen.exit->ended != WallTime{} &&
                     job::failed_at(*seen.exit) < job::failed_at(known->exit);
  // A rank that is slow to end after its exception is killed when a sibling ends because of it.
  const bool killed = seen.on_request && !seen.exit->recorded;
  if (!first || killed || seen.exit_attempt == task.restart_attempt || seen.exit_attempt == task.spared_attempt) return;
  known = Fault{task.place.task, task.place.node, job_.generation, seen.exit_attempt, wall_, *seen.exit};
}

void JobTransition::standby_event(const TaskRecord& task, const TaskObservation& seen) {
  std::string cause = seen.standby_cause;
  cut(cause, limits::kReasonBytes);
  switch (seen.standby) {
    case job::StandbyNews::none: return;
    case job::StandbyNews::ready: return task_event(task, "standby-ready", "");
    case job::StandbyNews::used: return task_event(task, "warm-start", "", {{"attempt", std::to_string(seen.attempt)}});
    case job::StandbyNews::failed: return task_event(task, "no-standby", std::move(cause));
  }
}

void JobTransition::observe(TaskRecord& task, const TaskObservation& seen, const std::string& node_name) {
  const TaskState before = task.state;
  const bool is_news = seen.exit && seen.exit_attempt > task.exit_attempt;
  if (is_news && seen.exit->with_host) disturb();
  if (is_news && (spares(seen) || (!seen.exit->success() && is_consequence()))) task.spared_attempt = seen.exit_attempt;
  stood_still(task, seen);
  count_attempts(task, seen);
  if (seen.attempt == task.attempt && seen.started != WallTime{}) task.started = seen.started;
  take_exit(task, seen);
  if (seen.ready && !task.ready) {
    task.ready = true;
    task_event(task, "ready", "");
  }
  standby_event(task, seen);
  task.pid = seen.pid;
  task.reason = seen.reason;
  cut(task.reason, limits::kReasonBytes);
  task.process_stopped = seen.process_stopped;
  task.state = seen.state;
  task.ended = seen.ended;
  if (task.lease == 0ns && seen.lease > 0ns) task.leased = ledger_.state_.applied;
  task.lease = std::max(task.lease, seen.lease);
  if (!task.reached_staged && seen.state != TaskState::waiting && seen.state != TaskState::fetching) {
    task.reached_staged = true;
    if (!seen.stage_failed) begins_there(task.place.node);
  }
  if (seen.state == TaskState::running) task.reached_running = true;
  const bool ordered = seen.on_request || job_.goal != Goal::run || job_.halt != Halt::none;
  // While a rerun waits for the end of the last run's tasks, nothing that they do completes the new run.
  if (seen.state == TaskState::succeeded && !seen.on_request && job_.halt != Halt::rerun && ledger_.broken_rule != "completion-durable")
    task.completed = true;

  std::vector<EventField> details{{"attempt", std::to_string(task.attempt)}};
  const std::string exit_text = seen.exit ? job::describe(*seen.exit) : std::string();
  if (!exit_text.empty()) details.push_back({"exit", exit_text});
  if (const std::uint32_t rank = seen.exit ? job::failed_rank(*seen.exit) : 0; rank > 0)
    details.push_back({"rank", std::to_string(rank - 1)});  // within the task
  if (task.state != before || (seen.state == TaskState::running && seen.attempt > 0 && before != TaskState::running)) {
    switch (task.state) {
      case TaskState::running:
        details.push_back({"node", node_name});
        details.push_back({"pid", std::to_string(task.pid)});
        if (before == TaskState::frozen) task_event(task, "thawed", "");
        else task_event(task, "running", seen.reason, std::move(details));
        break;
      case TaskState::frozen: task_event(task, "frozen", seen.reason, std::move(details)); break;
      case TaskState::backoff: task_event(task, "backoff", seen.reason, std::move(details)); break;
      case TaskState::stopping: task_event(task, "stopping", seen.reason, std::move(details)); break;
      case TaskState::succeeded: task_event(task, "succeeded", "", std::move(details)); break;
      case TaskState::failed: task_event(task, "failed", seen.reason, std::move(details)); break;
      default: break;
    }
  }
  if (seen.state == TaskState::backoff && !task.moving && job_.goal == Goal::run && job_.halt == Halt::none) grant_restart(task, seen);
  if (seen.state != TaskState::failed || before == TaskState::failed) return;
  // Several hosts may refuse the job at once: the first refusal halts the generation, and the next generation avoids
  // all of them.
  const bool goes_elsewhere = job_.goal == Goal::run && (job_.halt == Halt::none || job_.halt == Halt::replace);
  if (seen.stage_failed && goes_elsewhere) note_refusal(task.place.node, seen);
  if (ordered) return;
  if (seen.stage_failed) stage_failed(task, seen);
  else task_failed(task, seen);
}

// A report names a rank only where the ledger has version 3.
std::string JobTransition::what_failed(const TaskRecord& task, const TaskObservation& seen) {
  return seen.exit ? job::who_failed(task.place.task, *seen.exit) + ": " + job::describe(*seen.exit)
                   : task.place.task.text() + ": " + seen.reason;
}

void JobTransition::task_failed(TaskRecord& task, const TaskObservation& seen) {
  if (job_.evaluators_until || job_.doubted) return;  // it has succeeded, but for roles that it waits for; or its end is already decided
  const job::RoleSpec& role = job_.spec.roles.at(task.place.task.role);
  const std::string cause = what_failed(task, seen);
  // A task that its host gave up because of a failure that counts in no budget goes on by a recovery, too.
  const bool spared = seen.exit && task.spared_attempt == seen.exit_attempt;
  const bool retry = (job::is_stateful(job_.spec, task.place.task) || spared) && seen.exit && job::may_restart(role, *seen.exit);
  if (retry) {
    const auto& threshold = job_.spec.policy.failure_threshold;
    const std::string reason = cause + ": failed " + std::to_string(threshold.count) + " times within the failure threshold's window";
    const bool too_often = threshold.count > 0 && task.failures.size() >= threshold.count && !spared;
    if (too_often && !in_doubt(task, reason)) return finish(JobState::failed, reason, false);
    return too_often ? halt(Halt::recovery, false, true) : recover(task, cause, spared);
  }
  // A dynamic worker may be lost, but not the task whose success decides the job's.
  const auto decider = job::deciding_task(job_.spec);
  const bool works = job::role_rules(job_.spec.framework, task.place.task.role).works;
  if (works && job_.spec.policy.enable_dynamic_worker && decider && *decider != task.place.task) {
    task.given_up = true;
    return;
  }
  std::string reason = seen.reason.empty() ? cause : cause + ": " + seen.reason;
  if (job_.spec.policy.success_percent > 0 && counts_for_success(task.place.task)) {
    task.given_up = true;
    if (enough_succeeded(true)) return;
    reason += "; fewer than successPercent can succeed now";
  }
  if (seen.exit && job::may_restart(role, *seen.exit) && in_doubt(task, reason)) return;
  finish(JobState::failed, reason, false);
}

bool JobTransition::spend_restart(const std::string& cause, bool spared, const TaskRecord* fault) {
  const auto& limit = job_.spec.policy.backoff_limit;
  if (!spared && limit && job_.budget_spent >= *limit && ledger_.broken_rule != "budget") {
    const std::string reason = cause + ": backoffLimit of " + std::to_string(*limit) + " restarts is used up";
    if (fault == nullptr || !in_doubt(*fault, reason)) finish(JobState::failed, reason, true);
    return false;
  }
  ++job_.restarts;
  if (!spared && fault != nullptr && !fault->lost) charge(1);
  else job_.budget_spent += spared ? 0 : 1;
  return true;
}

void JobTransition::grant_restart(TaskRecord& task, const TaskObservation& seen) {
  if (!restarts_are_granted(job_) || task.granted_attempt > seen.attempt) return;
  // A user asked for the restart; this also holds if the task had ended by itself before its host heard of that.
  if (seen.on_request || task.restart_attempt == seen.attempt) ++job_.restarts;
  else if (!spend_restart(what_failed(task, seen), seen.exit && task.spared_attempt == seen.attempt, &task)) return;
  task.granted_attempt = seen.attempt + 1;
}

// The spec with the sizes of the generation that runs: after scaling down to one, that task may seem to need no care
// although the running generation does.
job::JobSpec JobTransition::as_begun() const {
  job::JobSpec begun = job_.spec;
  for (const auto& known : job_.tasks)
    if (const auto role = begun.roles.find(known.first.role); role != begun.roles.end())
      role->second.replicas = std::max(role->second.replicas, known.first.index + 1);
  return begun;
}

// True if a second instance would do harm while the first may still run unseen. Before all tasks are staged nothing
// was started. A task under a lease does no harm once the lease is over: it is frozen or has ended.
bool JobTransition::may_run_twice(const job::JobSpec& begun, const TaskRecord& task, const LostHost& lost) const {
  const TaskId& id = task.place.task;
  const bool harms =
      ledger_.state_.version >= 2 ? job::must_not_run_twice(begun, id) : job::is_stateful(begun, id) || job::is_exclusive(begun, id);
  if (lost.gone || !harms) return false;
  if (!ledger_.heard(task.place.node)) return true;  // the entries that say what it began may be lost
  if (task.lease > 0ns && task.leased <= lost.leases_over) return false;
  return task.granted_attempt >= task.first_attempt;
}

void JobTransition::wait_for_host(const std::string& cause, const std::string& what, const std::string& name) {
  job_.reason = cause + ", and " + what + "; dtrainctl forget-node " + name + " if it will not return";
  ledger_.add_event(wall_, job_.id, "job.waits", job_.spec.name, job_.reason, {{"job", job_.spec.name}, {"node", name}});
}

bool JobTransition::host_back(const NodeId& node) {
  if (job_.waits_for_host != node) return false;
  job_.waits_for_host.clear();
  job_.reason.clear();
  return true;
}

bool JobTransition::lose_host(const NodeId& node, const LostHost& lost) {
  const std::string& name = lost.name;
  const bool gone = lost.gone;
  std::vector<TaskRecord*> there;
  for (auto& [id, t] : job_.tasks)
    if (!t.ended && t.place.node == node) there.push_back(&t);
  if (there.empty()) return false;
  const bool goes_on = job_.goal == Goal::run && job_.halt == Halt::none && !is_final(job_.state);
  const std::string cause = "host " + name + (gone ? " is gone" : " does not answer");
  const job::JobSpec begun = as_begun();
  for (const TaskRecord* t : there) {
    if (!may_run_twice(begun, *t, lost) || ledger_.broken_rule == "stateful-waits-for-its-host") continue;
    const bool ends = t->lease > 0ns;  // it ends by itself
    if (!is_final(job_.state)) {
      job_.waits_for_host = node;
      wait_for_host(cause, t->place.task.text() + (ends ? " may run there until its lease is over" : " may run there"), name);
    }
    return true;
  }
  if (job_.waits_for_host == node) job_.waits_for_host.clear();
  disturb();
  bool alone = move_alone(job_.spec, {});
  // The loss of the frozen task itself counts as a restart; the loss of a host that was stopped in order does not.
  const bool stood_still = job_.still_since && std::ranges::none_of(there, [](const TaskRecord* t) { return t->lease > 0ns; });
  const bool spared = lost.ordered || stood_still;
  std::vector<TaskRecord*> started;
  for (TaskRecord* t : there) {
    t->ended = true;
    t->pid = 0;
    ledger_.use_ports(t->place);
    task_event(*t, "lost", cause, {{"node", name}});
    if (!goes_on || t->completed || t->given_up) continue;
    t->lost = true;
    t->ready = false;
    t->state = TaskState::waiting;
    t->reason = cause;
    if (t->attempt >= t->first_attempt || t->granted_attempt >= t->first_attempt) started.push_back(t);
    alone = alone && scales_alone(job_.spec, t->place.task.role) && !job::is_stateful(begun, t->place.task);
  }
  if (std::ranges::any_of(there, [](const TaskRecord* t) { return t->lease > 0ns; }))
    job_.must_be_frozen.clear();  // if another task must be frozen, the coordinator says so again
  if (!goes_on || std::none_of(there.begin(), there.end(), [](const TaskRecord* t) { return t->lost; })) return true;
  // No other task notices, or all get the new addresses.
  if (alone) {
    for (const TaskRecord* t : started)
      if (!spend_restart(t->place.task.text() + ": " + cause, spared)) return true;
    job_.reason = cause;
  } else if (!started.empty()) {
    recover(*started.front(), cause, spared);
  } else {
    halt(Halt::replace, false, true);
    job_.reason = cause;
  }
  return true;
}

void JobTransition::recover(const TaskRecord& task, const std::string& cause, bool spared) {
  const auto& policy = job_.spec.policy;
  if (!spend_restart(cause, spared, &task)) return;
  const Duration now = ledger_.state_.elapsed;
  const bool healthy = job_.was_running && now - job_.all_running_since >= policy.restart_backoff.reset_after;
  if (healthy) job_.recoveries_in_row = 0;
  if (!spared) {
    job_.charged = now;
    job_.not_before = now + job::backoff_delay(policy.restart_backoff, job_.recoveries_in_row, jitter_seed(job_));
    ++job_.recoveries_in_row;
  }
  if (job_.restored && !spared) ++job_.fruitless_restores;  // a later checkpoint that verifies resets it
  halt(Halt::recovery, false, true);
  set_state(JobState::recovering, cause, {{"task", task.place.task.text()}});
}

JobState JobTransition::running_state() const {
  bool all = true, any_started = false, any_staging = false, any_again = false;
  for (const auto& [id, t] : job_.tasks) {
    if (!wanted(id)) continue;
    all = all && counts_as_running(job_, t);
    any_started = any_started || t.completed || t.state == TaskState::starting || t.state == TaskState::running;
    any_staging = any_staging || t.state == TaskState::fetching || t.state == TaskState::staged;
    any_again = any_again || t.reached_running;
    if (t.state == TaskState::frozen) return JobState::recovering;
  }
  if (job_.still_since || !job_.waits_for_host.empty() || job_.doubted) return JobState::recovering;
  if (all) return JobState::running;
  if (job_.state == JobState::recovering) return JobState::recovering;
  // A gap between Running and Running again is always a restart in place.
  if (job_.state == JobState::running || (job_.state == JobState::restarting && any_again)) return JobState::restarting;
  if (any_started || any_again) return JobState::starting;
  if (any_staging) return JobState::staging;
  return JobState::placed;
}

void JobTransition::settle() {
  watch_still();
  // The barrier: from here on any task may be started by its host, even if that is never reported.
  if (std::ranges::all_of(job_.tasks, [](const auto& entry) { return entry.second.ended || entry.second.reached_staged; }))
    for (auto& [id, t] : job_.tasks) {
      if (t.ended) continue;
      t.granted_attempt = std::max(t.granted_attempt, t.first_attempt);
      ledger_.note_begun(job_);
    }
  // A job that was to leave its place may be done before its signal arrives, and then does not wait for another place.
  const bool may_be_done = job_.halt == Halt::none || (job_.halt == Halt::replace && job_.nothing_runs());
  if (job_.goal == Goal::run && may_be_done && !is_final(job_.state) && job_.generation > 0 && !job_.tasks.empty() && check_success() &&
      !waits_for_roles())
    finish(JobState::succeeded, "", false);
  else if (ended_before_deadline()) finish(JobState::failed, "every task ended after the signal before activeDeadlineSeconds", false);
  if (job_.generation == 0 || job_.nothing_runs()) job_.waits_for_host.clear();
  watch_state();
  watch_progress();
}

void JobTransition::watch_state() {
  if (is_final(job_.state)) {
    for (auto& [id, t] : job_.tasks) {
      if (!t.ended || t.state == TaskState::succeeded || t.state == TaskState::failed) continue;
      // The task was ended because the job was over. If the job succeeded, a ps or an idle worker had its part in that.
      t.state = job_.state == JobState::succeeded ? TaskState::succeeded : TaskState::failed;
      if (t.reason.empty()) t.reason = t.attempt < t.first_attempt ? "not started" : "ended with the job";
    }
    return;
  }

  drop_scaled_away();
  const bool stopped = job_.nothing_runs();
  if (job_.goal == Goal::suspend) {
    if (stopped && job_.state != JobState::suspended) {
      job_.halt = Halt::none;
      job_.needs_generation = false;
      for (auto& [id, t] : job_.tasks)
        if (!t.completed) t.state = TaskState::waiting;
      set_state(JobState::suspended, "suspended on request");
    }
    return;
  }
  if (job_.halt != Halt::none || job_.needs_generation) {
    for (auto& [id, t] : job_.tasks)
      if (stopped && !t.completed && t.state == TaskState::stopping) t.state = TaskState::waiting;
    if (stopped && job_.halt != Halt::recovery && job_.state != JobState::recovering && job_.state != JobState::pending)
      set_state(JobState::pending, job_.reason);
    return;
  }
  if (job_.generation == 0) return;
  const JobState next = running_state();
  if (next == JobState::running && job_.state != JobState::running) {
    job_.was_running = true;
    job_.stage_failures = 0;
    job_.all_running_since = ledger_.state_.elapsed;
  }
  if (next != job_.state) set_state(next, next == JobState::running ? std::string() : job_.reason);
}

}  // namespace dtrain::cluster
