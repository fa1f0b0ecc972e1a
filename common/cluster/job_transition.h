// The rules by which one job's record changes: states, halts, failures, ends. Used by Ledger::apply only;
// everything here is a pure function of the record, the command and the ledger's elapsed time. Order of the
// rules: docs/recovery.md and docs/frameworks.md.
#pragma once

#include <string>
#include <vector>

#include "common/cluster/ledger.h"
#include "common/cluster/shrink.h"

namespace dtrain::cluster {

// On `node` and not ended.
std::vector<TaskId> tasks_on(const JobRecord& job, const NodeId& node);
// It runs or is about to: it can be ended to go on elsewhere, or later.
bool can_leave(const JobRecord& job);
// Can these be ended and begun elsewhere while the job's other tasks go on? Else all of the job must.
bool move_alone(const job::JobSpec& spec, const std::vector<TaskId>& tasks);

// Of the jitter of its back-offs: replicas draw the same.
std::uint64_t jitter_seed(const JobRecord& job);

class JobTransition {
 public:
  JobTransition(Ledger& ledger, JobRecord& job, WallTime wall) : ledger_(ledger), job_(job), wall_(wall) {}

  // Sets the state (with event, condition and the passed list) when it differs.
  void set_state(JobState state, std::string reason, std::vector<EventField> details = {});
  // The job is over. What runs is ended with grace, or left alone when cleanPodPolicy says so and !force.
  void finish(JobState state, std::string reason, bool force_end);
  // The newest generation is to end; the next begins once nothing of it runs (unless goal says otherwise).
  void halt(Halt why, bool graceful, bool next_generation);
  void leave_place(Halt why, const std::string& reason, bool next_generation = true);
  void begin_again(Halt why, const std::string& reason);
  void observe(TaskRecord& task, const TaskObservation& seen, const std::string& node_name);
  // Its host is away. False: none of the job's tasks were left there.
  bool lose_host(const NodeId& node, const LostHost& lost);
  // Its host is drained, and it is to go on elsewhere (job_moves.cpp): tasks that nobody misses alone, else the whole generation,
  // with its stop grace and at no cost. `forced`: also what a finished job left running ends. False: it is not so any more.
  bool move_off(const NodeId& node, const std::string& name, bool forced);
  // For one of higher priority (job_moves.cpp): the generation ends with its stop grace and at no cost, and the job waits again with
  // its age. Its activeDeadlineSeconds counts anew then, as after a resume. False: it is not running any more.
  bool make_room(const JobRecord& by);
  // Has it ended where it was to leave? Then it wants another place.
  void moved(TaskRecord& task, const std::string& name);
  // It is back: nothing is waited for any more.
  bool host_back(const NodeId& node);
  // job_still.cpp. Begins or ends its standing still as its tasks are now; then what it stood still is no part of its run.
  void watch_still();
  // Derives state, completion, suspension, removal and progress from the tasks. Call after every change.
  void settle();
  // Of its next generation (job_sizes.cpp): roles without a size are whole.
  void resize(const Sizes& sizes);
  // More tasks beside those that run: of what it is short of.
  void grow(const std::vector<TaskPlacement>& more);
  // A new run of the same job: budgets, completions and the passed list start anew.
  void begin_run();
  void task_event(const TaskRecord& task, std::string type, std::string reason,
                  std::vector<EventField> details = {});

 private:
  void set_size(const std::string& role, std::uint32_t size, std::uint32_t whole);
  void count_attempts(TaskRecord& task, const TaskObservation& seen);
  void take_exit(TaskRecord& task, const TaskObservation& seen);
  void stood_still(TaskRecord& task, const TaskObservation& seen);
  void credit_still(Duration from);
  bool spares(const TaskObservation& seen) const;
  void grant_restart(TaskRecord& task, const TaskObservation& seen);
  job::JobSpec as_begun() const;
  bool may_run_twice(const job::JobSpec& begun, const TaskRecord& task, const LostHost& lost) const;
  void wait_for_host(const std::string& cause, const std::string& what, const std::string& name);
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
  // One restart is counted, against the job's budget too unless `spared`. False: that was used up, and the job has failed, or is in doubt
  // where `fault` may have died of what is not known yet.
  bool spend_restart(const std::string& cause, bool spared = false, const TaskRecord* fault = nullptr);
  void charge(std::uint32_t restarts);  // for exits: they may show to be consequences
  void watch_state();
  bool check_success();
  bool wanted(const TaskId& id) const;  // not scaled away
  bool ended_before_deadline() const;
  void drop_scaled_away();
  JobState running_state() const;

  Ledger& ledger_;
  JobRecord& job_;
  WallTime wall_;
};

}  // namespace dtrain::cluster
