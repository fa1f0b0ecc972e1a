#include "common/node/watched_jobs.h"

#include <utility>

namespace dtrain::node {
namespace {

// True if the ledger has, or is about to have, this reason; a user's action may have replaced it meanwhile.
bool is_told(const cluster::JobRecord& job, WatchedJob& soft) {
  if (job.reason == soft.told) soft.told_after.reset();
  return job.reason == soft.told || job.reason == soft.told_after;
}

}  // namespace

void WatchedJobs::reset() {
  jobs_.clear();
  proposals_.clear();
}

WatchedJob* WatchedJobs::find(JobId id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

std::set<JobId> WatchedJobs::due() const {
  std::set<JobId> ids;
  for (const auto& [id, soft] : jobs_)
    if (soft.deadline <= c_.now.boot) ids.insert(id);
  return ids;
}

Instant WatchedJobs::deadline() const {
  Instant first = kNever;
  for (const auto& [id, soft] : jobs_) first = std::min(first, soft.deadline);
  return first;
}

std::set<JobId> WatchedJobs::applied(std::uint64_t index) {
  std::set<JobId> ids;
  const auto last = proposals_.upper_bound(index);
  for (auto it = proposals_.begin(); it != last; ++it) {
    ids.insert(it->second);
    WatchedJob* soft = find(it->second);
    if (soft != nullptr && soft->proposed == it->first) soft->proposed = 0;
  }
  proposals_.erase(proposals_.begin(), last);
  return ids;
}

void WatchedJobs::wait(const cluster::JobRecord& job, WatchedJob& soft, const std::string& reason, bool for_restore) {
  soft.waits_as.reset();
  const bool said = soft.waiting == reason && is_told(job, soft);
  soft.waiting = reason;
  // The reason in the ledger may be about to be replaced by one in flight that no longer holds: then the present
  // reason is proposed again.
  const bool replaced = soft.told_after == job.reason && soft.told != reason;
  if (said || (job.reason == reason && !replaced)) return;
  soft.told = reason;
  soft.told_after = job.reason;
  c_.propose(cluster::CommandType::waits, cluster::JobWaits{job.id, reason, for_restore});
}

// The ledger gets a new reason only when the kind of waiting changes. Numbers in it change with every start and end,
// and are shown only by the coordinator.
void WatchedJobs::wait_in_queue(const cluster::JobRecord& job, WatchedJob& soft, const cluster::Waits& waits) {
  std::string reason = waits.reason;
  if (job.preempted.by != 0) reason = "preempted by " + job.preempted.name + "; " + reason;
  if (soft.waits_as == waits.kind && !soft.waiting.empty() && is_told(job, soft)) {
    soft.waiting = std::move(reason);
    return;
  }
  wait(job, soft, reason);
  soft.waits_as = waits.kind;
}

std::string WatchedJobs::waiting_for(JobId id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? "" : it->second.waiting;
}

}  // namespace dtrain::node
