// The tasks of this host: gives task::Assignments the orders that follow from the ledger, carries out what it decides, passes on what the
// agent and the shims say, and reports what was observed. The files of a job are removed once nothing of it runs here.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/node/context.h"
#include "common/node/host_fitness.h"
#include "common/node/leases.h"
#include "common/node/part.h"
#include "common/node/proposals.h"
#include "common/node/staging.h"
#include "common/node/streams.h"
#include "common/task/assignments.h"

namespace dtrain::node {

class HostTasks final : public Part {
 public:
  HostTasks(Context& context, Staging& staging, Proposals& proposals, Leases& leases, Streams& streams, const HostFitness& fitness);

  // Adopts the shims that were found. The ledger's state must be loaded.
  void start(const Started& e);
  bool adopted() const { return tasks_.has_value(); }
  // This agent is about to end: the next life carries out what is ordered from now on.
  void stop() { stopping_ = true; }
  // The attempts that run here, in order.
  std::vector<std::pair<AssignmentId, AttemptNumber>> running() const { return tasks_ ? tasks_->running() : decltype(running()){}; }

  // ---- the ledger
  void give_orders(JobId id);                   // recomputes the orders of one job for this host
  void signal(JobId id);                        // signalBeforeDeadline: sends the signal to the tasks that run here
  void remove_files(JobId id, JobFiles files);  // once nothing of the job runs here
  // To be called before the ledger is given up: its jobs count as found at a start.
  void remember_jobs();
  // Returns the jobs whose shims were found at the start, once.
  std::set<JobId> take_found_jobs() { return std::exchange(found_jobs_, {}); }
  // To be called after the orders of every job: ends shims that no order claimed.
  void finish_adoption() { tasks_->finish_adoption(); }
  void need_leases() { tasks_->need_leases(c_.now.boot); }

  // ---- what happens. Before the orders, shims of an earlier life of the agent belong to no task here: unclaimed().
  bool unclaimed(const AssignmentId& id) const { return tasks_ && tasks_->unclaimed(id); }
  void found_frozen(const AssignmentId& id, bool frozen) { tasks_->found_frozen(id, frozen); }
  void staged(const Staged& e);
  void shim_up(const ShimUp& e);
  void attempt_started(const AttemptStarted& e);
  void attempt_refused(const AttemptRefused& e);
  void attempt_exited(const AttemptExited& e);
  void shim_gone(const ShimGone& e);
  void freeze_done(const FreezeDone& e);
  void notified(const Notified& e);
  void files_removed(const JobFilesRemoved& e);
  void lease_asked(const LeaseAsked& e);
  void lease_froze(const LeaseFroze& e);
  void processes_seen(const ProcessesSeen& e);
  void standby_reported(const StandbyReport& e);
  // To be called at the beginning of a turn: without a word of a coordinator for one lease, tasks are frozen.
  void watch_word();
  void take_from_staging();  // reasons and ends

  void log_advanced() override;
  Instant deadline() const override;
  void tick() override;

 private:
  bool wants(const AssignmentId& id) const;  // the assignment is to run here
  void report();
  void answer_leases();
  template <class F>
  void with_task(const AssignmentId& id, F&& act);

  Context& c_;
  Staging& staging_;
  Proposals& proposals_;
  Leases& leases_;
  Streams& streams_;
  const HostFitness& fitness_;
  std::unique_ptr<task::HostActions> actions_;
  std::optional<task::Assignments> tasks_;
  // of active jobs; made anew for each generation and size
  std::map<JobId, std::shared_ptr<const task::JobContext>> contexts_;
  std::map<JobId, JobFiles> files_to_remove_;  // of ended and of forgotten jobs
  std::set<JobId> found_jobs_;
  std::uint64_t said_back_ = 0;  // index of the newest HostLost of this host that was answered
  Instant last_word_{};          // when the coordinator was last heard
  bool stopping_ = false;
};

}  // namespace dtrain::node
