// All assignments of this host: compares what is ordered with the shims that exist, routes events to the right Task,
// and answers questions that concern more than one task.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/broken_rule.h"
#include "common/task/bound_tasks.h"
#include "common/task/task.h"

namespace dtrain::task {

class Assignments : private RestartGate {
 public:
  Assignments(HostContext host, HostActions& actions) : host_(std::move(host)), actions_(actions), bound_(host_.cpus) {}

  // Takes what the runner found at the start. To be called once, before the first update().
  void adopt(std::vector<FoundShim> found);
  bool unclaimed(const AssignmentId& id) const { return found_.contains(id); }
  // One of the adopted shims reports that it froze or thawed its task because of its lease.
  void found_frozen(const AssignmentId& id, bool frozen);
  // Takes the orders of one job. Assignments of the job that are not among them are killed.
  void update(Instant now, const JobOrder& order);
  // The job is gone from the ledger: its assignments are killed.
  void forget(Instant now, JobId job) { update(now, JobOrder{job, {}, {}}); }
  // To be called after the orders of every job: ends the shims that no order claimed.
  void finish_adoption();

  // The cluster has a second host: from now on the tasks that job::wants_lease() names run under leases.
  void need_leases(Instant now);
  bool needs_leases() const { return host_.needs_leases; }
  // No coordinator has been heard for so long that no earlier lease holds any more (or one is heard again).
  void cut_off(Instant now, bool is);

  Task* find(const AssignmentId& id);
  const Task* find(const AssignmentId& id) const;
  // The attempts that run now, in order of id.
  std::vector<std::pair<AssignmentId, AttemptNumber>> running() const;
  // To be called after an event was given to a task: neighbours that waited for it continue, and finished tasks are dropped.
  void settle(Instant now, JobId job);
  void shim_gone(Instant now, const AssignmentId& id);
  void tick(Instant now);
  Instant deadline() const;

  // Returns the present state of at most `most` tasks that changed since the last call; the others follow with the next call.
  std::vector<job::TaskObservation> take_observations(std::size_t most);
  // True when nothing of this job is alive on this host or may still start here.
  bool quiet(JobId job) const;
  // The same for all jobs.
  bool quiet() const;
  // True when something of this assignment is alive on this host or may still start here.
  bool may_run(const AssignmentId& id) const;
  // True when nothing is left here that is no longer wanted here.
  bool settled() const;

  // For --break in the simulator.
  BrokenRule broken_rule{};

 private:
  bool budget_allows(const AssignmentId& id) const override;
  bool predecessor_gone(const AssignmentId& id) const override;
  bool halt_expected(const AssignmentId& id) const override;
  bool stands_still(const AssignmentId& id, bool beside_leased) const override;
  std::string bind(ShimSpec& spec, const std::vector<std::int32_t>& gpu_nodes) override {
    return bound_.bind(spec, gpu_nodes, broken_rule == "own-cpus");
  }
  void unbind(const AssignmentId& id) override { bound_.release(id); }
  void has_news(const AssignmentId& id) override { news_.insert(id); }
  using Tasks = std::map<AssignmentId, std::unique_ptr<Task>>;  // ordered by job first
  std::pair<Tasks::const_iterator, Tasks::const_iterator> of(JobId job) const;
  void advance_all(Instant now);

  HostContext host_;
  HostActions& actions_;
  BoundTasks bound_;
  Tasks tasks_;
  std::set<AssignmentId> unwanted_;  // of tasks_: those taken from this host; if wanted again later, they begin anew
  std::map<JobId, std::optional<std::uint32_t>> budget_left_;
  std::map<AssignmentId, FoundShim> found_;  // not yet claimed by an order
  std::set<AssignmentId> found_frozen_;      // those of found_ that are frozen
  std::map<AssignmentId, bool> ending_;      // shims without an order that are being ended
  bool cut_off_ = false;
  std::set<AssignmentId> news_;  // of tasks_: those that have something to tell
  AssignmentId observed_to_;     // where the last take_observations() stopped at its limit
  // The earliest deadline of each job that has one. A task's depends on what was ordered and observed of its own job, so that only jobs of
  // which something changed since are looked at again.
  mutable std::map<JobId, Instant> deadlines_;
  mutable std::set<JobId> changed_;
};

}  // namespace dtrain::task
