// The rules by which one job's record changes: states, halts, failures, ends. Used only by Ledger::apply; everything
// here is a pure function of the record, the command and the ledger's elapsed time. Order of the rules:
// docs/recovery.md and docs/frameworks.md.
#pragma once

#include <string>
#include <vector>

#include "common/cluster/ledger.h"
#include "common/cluster/shrink.h"

namespace dtrain::cluster {

// The job's tasks on `node` that have not ended.
std::vector<TaskId> tasks_on(const JobRecord& job, const NodeId& node);
// True if the job runs or is about to, so that it can be ended to continue elsewhere or later.
bool can_leave(const JobRecord& job);
// True if these tasks can be ended and begun elsewhere while the job's other tasks go on; otherwise the whole job must move.
bool move_alone(const job::JobSpec& spec, const std::vector<TaskId>& tasks);

// Seed for the jitter of the job's back-offs: all replicas draw the same.
std::uint64_t jitter_seed(const JobRecord& job);

class JobTransition {
 public:
  JobTransition(Ledger& ledger, JobRecord& job, WallTime wall) : ledger_(ledger), job_(job), wall_(wall) {}

  // Sets the state, if it differs, with event, condition and the passed list.
  void set_state(JobState state, std::string reason, std::vector<EventField> details = {});
  // Ends the job. Running tasks are ended with grace, or left alone if cleanPodPolicy says so and !force_end.
  void finish(JobState state, std::string reason, bool force_end);
  // Ends the newest generation; the next begins once nothing of it runs (unless the goal says otherwise).
  void halt(Halt why, bool graceful, bool next_generation);
  void leave_place(Halt why, const std::string& reason, bool next_generation = true);
  void begin_again(Halt why, const std::string& reason);
  void observe(TaskRecord& task, const TaskObservation& seen, const std::string& node_name);
  // To be called when the tasks' host is away. Returns false if the job had no tasks left there.
  bool lose_host(const NodeId& node, const LostHost& lost);
  // Moves the job off a drained host (job_moves.cpp): only the tasks there if the others can go on without them, else
  // the whole generation, with its stop grace and at no cost. `forced`: also ends what a finished job left running.
  // Returns false if the job has nothing to move.
  bool move_off(const NodeId& node, const std::string& name, bool forced);
  // Makes room for a job of higher priority (job_moves.cpp): ends the generation with its stop grace and at no cost;
  // the job waits again with its age, and its activeDeadlineSeconds counts anew, as after a resume. Returns false if
  // the job is not running any more.
  bool make_room(const JobRecord& by);
  // If the task has ended on the host that it was to leave, it now wants another place.
  void moved(TaskRecord& task, const std::string& name);
  // To be called when a host is back: the job stops waiting for it. Returns false if it did not wait.
  bool host_back(const NodeId& node);
  // job_still.cpp: begins or ends the job's standing still, by the present state of its tasks; the time that it stood
  // still does not count as run time.
  void watch_still();
  // Derives state, completion, suspension, removal and progress from the tasks. To be called after every change.
  void settle();
  // Sets the sizes of the next generation (job_sizes.cpp); roles that are not named have all their tasks.
  void resize(const Sizes& sizes);
  // Adds tasks that the job lacks to those that run.
  void grow(const std::vector<TaskPlacement>& more);
  // Begins a new run of the same job: budgets, completions and the passed list start anew.
  void begin_run();
  void standby_event(const TaskRecord& task, const job::TaskObservation& seen);
  void task_event(const TaskRecord& task, std::string type, std::string reason, std::vector<EventField> details = {});

 private:
  void set_size(const std::string& role, std::uint32_t size, std::uint32_t whole);
  void count_attempts(TaskRecord& task, const TaskObservation& seen);
  void take_exit(TaskRecord& task, const TaskObservation& seen);
  void note_earlier_fault(const TaskRecord& task, const TaskObservation& seen);
  void stood_still(TaskRecord& task, const TaskObservation& seen);
  void credit_still(Duration from);
  bool spares(const TaskObservation& seen) const;
  void grant_restart(TaskRecord& task, const TaskObservation& seen);
  job::JobSpec as_begun() const;
  bool may_run_twice(const job::JobSpec& begun, const TaskRecord& task, const LostHost& lost) const;
  void wait_for_host(const std::string& cause, const std::string& what, const std::string& name);
  static std::string what_failed(const TaskRecord& task, const TaskObservation& seen);
  void task_failed(TaskRecord& task, const TaskObservation& seen);
  void stage_failed(const TaskRecord& task, const TaskObservation& seen);
  void note_refusal(const NodeId& host, const TaskObservation& seen);
  void begins_there(const NodeId& host);
  // consequences.cpp
  bool is_consequence() const;
  void disturb();
  bool in_doubt(const TaskRecord& task, const std::string& reason);
  void watch_progress();
  void recover(const TaskRecord& task, const std::string& cause, bool spared);
  bool waits_for_roles();
  // Counts one restart, against the job's budget too unless `spared`. Returns false if the budget was used up: the
  // job has then failed, or is in doubt if `fault` may have been caused by something that is not known yet.
  bool spend_restart(const std::string& cause, bool spared = false, const TaskRecord* fault = nullptr);
  void charge(std::uint32_t restarts);  // for exits, which may turn out to be consequences
  void watch_state();
  bool check_success();
  bool counts_for_success(const TaskId& task) const;
  bool enough_succeeded(bool may_yet) const;
  bool wanted(const TaskId& id) const;  // the task was not scaled away
  bool ended_before_deadline() const;
  void drop_scaled_away();
  JobState running_state() const;

  Ledger& ledger_;
  JobRecord& job_;
  WallTime wall_;
};

}  // namespace dtrain::cluster
