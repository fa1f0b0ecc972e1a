// The coordinator's decisions: looks at every job that changed, and at the hosts, and proposes what comes next - a
// generation, an end, a removal. Changes nothing itself; a proposal takes effect when the log commits it.
//
// This class only says in which order its parts look. Each part knows those before it in this list, at most:
//   WatchedJobs     of each job: the proposal in flight, the next look, why it waits
//   KeptPlaces      places booked and held; free capacity
//   JobWatch        a job as a whole: deadlines, doubt, standing still
//   HostWatch       hosts that are lost
//   RestoreChooser  checkpoints to restore
//   WaitingJobs     who wants places
//   Placer          who gets them: begins generations, preempts
//   GrowingJobs     who shrank and begins again with all tasks
//   DrainedHosts    who leaves a drained host
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/node/drained_hosts.h"
#include "common/node/growing_jobs.h"
#include "common/node/host_watch.h"
#include "common/node/job_watch.h"
#include "common/node/part.h"
#include "common/node/placer.h"

namespace dtrain::node {

class Coordinator final : public Part {
 public:
  Coordinator(Context& context, Leases& leases, CheckpointRequests& checkpoints);

  // To be called when another node coordinates: discards all that this class knows.
  void reset();
  // To be called when these jobs changed or were removed.
  void consider(const std::set<JobId>& ids);
  // To be called when entries up to this index are applied: those jobs may be decided about again. Returns their ids.
  std::set<JobId> applied(std::uint64_t index);
  void tick() override;
  Instant deadline() const override;
  // To be called when hosts may have come, gone, died or changed: they are looked at with the next tick.
  void members_changed() override { next_look_ = {}; }
  // To be called when a drain began or ended.
  void drains_changed();

  void scanned(const CheckpointsScanned& e) override;
  void verified(const CheckpointVerified& e) override;
  void quarantined(const CheckpointQuarantined& e) override;

  // The placement that the job would get now, for `plan`. Reserves nothing.
  Result<std::vector<cluster::TaskPlacement>> try_place(const job::JobSpec& spec) const;
  // Why the job waits; "" when it does not wait.
  std::string waiting_for(JobId id) const { return jobs_.waiting_for(id); }

 private:
  bool look_at(JobId id);
  void forget(JobId id);
  void look_at_hosts();
  bool has_others() const;  // other hosts may have tasks, with or without a copy of the log
  bool watches_hosts() const { return has_others() || !c_.ledger.state().drained.empty(); }

  Context& c_;
  WatchedJobs jobs_;
  KeptPlaces places_;
  JobWatch job_watch_;
  HostWatch host_watch_;
  RestoreChooser restores_;
  WaitingJobs waiting_;
  Placer placer_;
  GrowingJobs growing_;
  DrainedHosts drained_;
  Instant next_look_{};  // when the hosts are looked at next
  bool drains_changed_ = false;
};

}  // namespace dtrain::node
