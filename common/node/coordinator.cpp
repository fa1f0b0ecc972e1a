#include "common/node/coordinator.h"

#include <algorithm>
#include <utility>

#include "common/node/cluster_members.h"

namespace dtrain::node {

using cluster::JobRecord;

Coordinator::Coordinator(Context& context, Leases& leases, CheckpointRequests& checkpoints)
    : Part(Runs::with_disk),
      c_(context),
      jobs_(context),
      places_(context),
      job_watch_(context, jobs_, leases),
      host_watch_(context, leases),
      restores_(context, *this, jobs_, checkpoints),
      waiting_(context, jobs_, places_, restores_),
      placer_(context, jobs_, places_, restores_, waiting_),
      growing_(context, jobs_, places_, placer_),
      drained_(context, jobs_, places_) {}

void Coordinator::reset() {
  jobs_.reset();
  places_.reset();
  job_watch_.reset();
  host_watch_.reset();
  restores_.reset();
  waiting_.reset();
  placer_.reset();
  growing_.reset();
  drained_.reset();
  next_look_ = {};
}

std::set<JobId> Coordinator::applied(std::uint64_t index) {
  places_.applied(index);
  host_watch_.applied(index);
  return jobs_.applied(index);
}

void Coordinator::consider(const std::set<JobId>& ids) {
  bool changed = false;
  for (const JobId id : ids) changed = look_at(id) || changed;
  if (!changed) return;
  drained_.move_jobs();
  placer_.give_places();
}

// Returns true if the job wants a place, or if something that it held may be free.
bool Coordinator::look_at(JobId id) {
  const JobRecord* job = c_.ledger.find(id);
  if (job == nullptr) {
    forget(id);
    return true;
  }
  WatchedJob& soft = jobs_.watch(id);
  soft.deadline = kNever;
  restores_.job_changed(*job);
  if (soft.proposed == 0) job_watch_.look(*job, soft);
  const bool wants_place = waiting_.look(*job, soft);
  growing_.look(*job, soft);
  if (wants_place) return true;
  // A quiet finished job without a time to live needs nothing more: 10,000 of them may be kept.
  if (is_final(job->state) && job->nothing_runs() && !job->deleting && !job->spec.policy.ttl_after_finished && soft.proposed == 0)
    forget(id);
  return job->nothing_runs();
}

void Coordinator::forget(JobId id) {
  job_watch_.forget(id);
  restores_.forget(id);
  waiting_.forget(id);
  growing_.forget(id);
  jobs_.forget(id);
}

void Coordinator::tick() {
  if (!c_.serving) return;
  consider(jobs_.due());
  if (next_look_ <= c_.now.boot) look_at_hosts();
}

Instant Coordinator::deadline() const {
  if (!c_.serving) return kNever;
  return watches_hosts() ? std::min(next_look_, jobs_.deadline()) : jobs_.deadline();
}

void Coordinator::drains_changed() {
  drains_changed_ = true;
  look_at_hosts();
}

void Coordinator::look_at_hosts() {
  if (!c_.serving || c_.storage_failed) return;
  next_look_ = c_.now.boot + kLookEvery;
  if (!watches_hosts() && !std::exchange(drains_changed_, false)) return;
  drains_changed_ = false;
  if (has_others()) {
    next_look_ = std::min(next_look_, host_watch_.look());
    next_look_ = std::min(next_look_, job_watch_.watch_leases());
  }
  drained_.lead_elsewhere(restores_.asks() || jobs_.any_proposed());
  drained_.move_jobs();
  if (!placer_.hosts_differ()) return;
  restores_.look_again(waiting_.all());  // the host of a checkpoint for which a job waits may be back
  consider(std::set<JobId>(waiting_.all()));
}

bool Coordinator::has_others() const {
  const auto counts = c_.members->table().counts();
  return c_.among_others() || counts.alive + counts.suspect + counts.down + counts.dead > 1;
}

void Coordinator::scanned(const CheckpointsScanned& e) {
  if (restores_.scanned(e)) consider({e.job});
}

void Coordinator::verified(const CheckpointVerified& e) {
  if (restores_.verified(e)) consider({e.job});
}

void Coordinator::quarantined(const CheckpointQuarantined& e) {
  if (restores_.quarantined(e)) consider({e.job});
}

Result<std::vector<cluster::TaskPlacement>> Coordinator::try_place(const job::JobSpec& spec) const {
  return cluster::place(spec, cluster::wanted_tasks(spec), places_.free());
}

}  // namespace dtrain::node
