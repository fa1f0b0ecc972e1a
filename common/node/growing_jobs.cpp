#include "common/node/growing_jobs.h"

#include <algorithm>

#include "common/cluster/cluster_change.h"
#include "common/cluster/job_transition.h"

namespace dtrain::node {
namespace {

using cluster::JobRecord;

// Searches for room in each kLookEvery, over all jobs: a job is looked at less often if there are more that shrank.
constexpr std::size_t kGrowTries = 16;
// If there is room again so soon after a job grew, its hosts come and go: it waits twice as long as the last time, at most kLongestWait
// (or as long as its user said).
constexpr Duration kGrewLately = 1h, kLongestWait = 1h;

bool restores(const JobRecord& job) { return job.spec.checkpoint && job.spec.checkpoint->restore != "never"; }

// Zero: it does not. Unless its user says otherwise, nothing is ended that would not be restored.
Duration grow_after(const JobRecord& job) {
  return job.spec.policy.grow_after.value_or(restores(job) ? job::kGrowAfterUnlessSaid : Duration{0});
}

bool may_grow(const JobRecord& job) {
  if (job.shrunk.empty() || !cluster::can_leave(job) || job.state != cluster::JobState::running || grow_after(job) == Duration::zero())
    return false;
  if (job.doubted || job.still_since || job.evaluators_until) return false;
  // One that has completed tasks is about to end, and one that moves tasks is looked at afterwards.
  if (std::ranges::any_of(job.tasks, [](const auto& t) { return t.second.completed || t.second.lost || t.second.moving; })) return false;
  return std::ranges::any_of(job.shrunk, [&](const auto& role) { return !cluster::scales_alone(job.spec, role.first); });
}

}  // namespace

GrowingJobs::Saved GrowingJobs::newest_saved(const JobRecord& job) {
  Saved newest{0, -1};
  for (const cluster::CheckpointRecord& r : job.checkpoints)
    if (r.state == cluster::CheckpointState::verified && !job.is_stale(r.generation, r.info.step))
      newest = std::max(newest, Saved{r.generation, r.info.step});
  return newest;
}

void GrowingJobs::look(const JobRecord& job, WatchedJob& soft) {
  if (soft.proposed != 0) return;
  if (!may_grow(job) || places_.held_for(job.id) != nullptr) {
    if (const auto known = growing_.find(job.id); known != growing_.end()) known->second.due.reset();
    return;
  }
  Growing& growing = growing_[job.id];
  if (growing.next_look <= c_.now.boot) look_for_room(job, soft, growing);
  if (growing.due && growing.saved)
    soft.waiting = "there is room for all its tasks: it begins again with them once its next checkpoint verifies";
  soft.look_by(growing.next_look);
}

void GrowingJobs::look_for_room(const JobRecord& job, WatchedJob& soft, Growing& growing) {
  growing.next_look = c_.now.boot + kLookEvery * (1 + growing_.size() / kGrowTries);
  auto room = placer_.room_for_all(job);
  if (!room && c_.options.broken_rule != "grows-into-room") return growing.due.reset();
  if (!growing.due) {
    growing.wait = wait_of(job, growing);
    growing.due = c_.now.boot + growing.wait;
    growing.saved.reset();
  }
  if (*growing.due > c_.now.boot) {
    growing.next_look = std::min(growing.next_look, *growing.due);
    return;
  }
  if (restores(job)) {  // so that nothing is lost that the next generation could have had
    if (!growing.saved) growing.saved = newest_saved(job);
    if (newest_saved(job) <= *growing.saved) return;
  }
  cluster::JobAction restart;
  restart.kind = cluster::ActionKind::restart;
  restart.job = job.id;
  restart.user = "dtrain: there is room for all its tasks";
  jobs_.propose(soft, job.id, cluster::CommandType::action, restart);
  if (soft.proposed == 0) return;
  if (room) places_.held()[job.id] = {"", job.generation, soft.proposed, true, cluster::whole_spec(job), std::move(*room)};
  growing.waited = growing.wait;
  growing.grew = c_.now.boot;
  growing.due.reset();
}

Duration GrowingJobs::wait_of(const JobRecord& job, const Growing& growing) const {
  const Duration least = grow_after(job);
  if (!growing.grew || *growing.grew + kGrewLately <= c_.now.boot) return least;
  return std::max(least, std::min(growing.waited * 2, kLongestWait));
}

}  // namespace dtrain::node
