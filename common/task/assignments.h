// All assignments of this host: desired (orders) against actual (shims). Routes what happens to the right
// Task and answers the questions that need more than one of them.
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

  // What the runner found at start. Call once, before the first update().
  void adopt(std::vector<FoundShim> found);
  bool unclaimed(const AssignmentId& id) const { return found_.contains(id); }
  // Of one of them: for want of a lease.
  void found_frozen(const AssignmentId& id, bool frozen);
  // The orders of one job. Assignments of that job that are not among them are killed.
  void update(Instant now, const JobOrder& order);
  // The job is gone from the ledger: what is left of it is killed.
  void forget(Instant now, JobId job) { update(now, JobOrder{job, {}, {}}); }
  // After the orders of every job: shims that nobody ordered end.
  void finish_adoption();

  // The cluster has a second host: from now on what job::wants_lease() names runs under a lease.
  void need_leases(Instant now);
  bool needs_leases() const { return host_.needs_leases; }
  // Nobody has been heard to coordinate for so long that no lease of before holds any more.
  void cut_off(Instant now, bool is);

  Task* find(const AssignmentId& id);
  const Task* find(const AssignmentId& id) const;
  // What runs now, in order of id.
  std::vector<std::pair<AssignmentId, AttemptNumber>> running() const;
  // Call after an event was given to a task: neighbours that waited for it go on, finished ones are dropped.
  void settle(Instant now, JobId job);
  void shim_gone(Instant now, const AssignmentId& id);
  void tick(Instant now);
  Instant deadline() const;

  // What changed since the last call, of at most so many tasks: each as it is now. The others' turn comes with the next
  // call.
  std::vector<job::TaskObservation> take_observations(std::size_t most);
  // True when nothing of this job is or may come alive on this host.
  bool quiet(JobId job) const;
  // Of no job at all.
  bool quiet() const;
  // Something of this assignment is, or may come, alive on this host.
  bool may_run(const AssignmentId& id) const;
  // Nothing is left of what is not wanted here.
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
  using Tasks = std::map<AssignmentId, std::unique_ptr<Task>>;  // ordered by job first
  std::pair<Tasks::const_iterator, Tasks::const_iterator> of(JobId job) const;

  HostContext host_;
  HostActions& actions_;
  BoundTasks bound_;
  Tasks tasks_;
  std::set<AssignmentId> unwanted_;  // of tasks_: taken from this host; wanted again later it begins anew
  std::map<JobId, std::optional<std::uint32_t>> budget_left_;
  std::map<AssignmentId, FoundShim> found_;  // not yet claimed by an order
  std::set<AssignmentId> found_frozen_;      // of those
  std::map<AssignmentId, bool> ending_;      // shims that nobody ordered, being ended
  bool cut_off_ = false;
  AssignmentId observed_to_;                 // where the last full take_observations() ended
};

}  // namespace dtrain::task
