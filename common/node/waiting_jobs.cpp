#include "common/node/waiting_jobs.h"

#include <algorithm>
#include <utility>

#include "common/base/lease.h"
#include "common/cluster/cluster_change.h"
#include "common/cluster/job_transition.h"
#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;

// Pause before looking again at a job that was placed on more hosts than may have tasks; meanwhile its places are
// free for others.
constexpr Duration kTooWideAgain = 5s;

// True if the job's last generation ends or has ended, and the next is to come soon.
bool between_generations(const JobRecord& job, const cluster::LedgerState& state, Duration now) {
  if (job.goal != cluster::Goal::run || is_final(job.state) || !job.needs_generation || job.generation == 0) return false;
  const bool away =
      std::ranges::any_of(job.tasks, [&](const auto& t) { return !t.second.ended && state.lost.contains(t.second.place.node); });
  return !away && (!job.nothing_runs() || job.not_before > now);
}

}  // namespace

bool begins(const JobRecord& job) {
  return job.goal == cluster::Goal::run && !is_final(job.state) && job.needs_generation && job.nothing_runs();
}

std::uint64_t run_of(const JobRecord& job) { return job.generation + (begins(job) ? 1 : 0); }

void WaitingJobs::reset() {
  unplaced_.clear();
  terms_.clear();
}

void WaitingJobs::forget(JobId id) {
  unplaced_.erase(id);
  terms_.erase(id);
}

bool WaitingJobs::look(const JobRecord& job, WatchedJob& soft) {
  watch_room(job, soft);
  if (!tasks_to_place(job, soft).empty()) {
    unplaced_.insert(job.id);
    return true;
  }
  // If it is to run, it waits for its turn, a checkpoint, or the end of its running tasks.
  if (job.goal != cluster::Goal::run || is_final(job.state) || !job.needs_generation) placed(job, soft);
  return false;
}

void WaitingJobs::placed(const JobRecord& job, WatchedJob& soft) {
  unplaced_.erase(job.id);
  soft.waiting.clear();
}

void WaitingJobs::too_wide(const JobRecord& job, WatchedJob& soft, const std::string& why) {
  Instant& until = terms_[job.id].too_wide_until;
  until = c_.now.boot + kTooWideAgain;
  soft.look_by(until);  // this may be the last decision in a row
  jobs_.wait(job, soft, why);
}

// ---------------------------------------------------------------- which tasks

std::vector<TaskId> WaitingJobs::tasks_to_place(const JobRecord& job, WatchedJob& soft) {
  if (must_wait(job, soft)) return {};
  if (!job.needs_generation) return tasks_to_add(job, soft);
  if (!job.nothing_runs() && c_.options.broken_rule != "kill-before-next-generation") return {};
  Instant until = job.not_before > c_.elapsed() ? jobs_.at(job.not_before) : c_.now.boot;
  until = std::max(until, restores_.idle_until(job));
  if (until > c_.now.boot) {
    soft.look_by(until);
    return {};
  }
  if (makes_way(job, soft)) return {};
  watch_refusals(job, soft);
  return cluster::whole_tasks(job);
}

// True if no task of the job may get a place now, whichever it is.
bool WaitingJobs::must_wait(const JobRecord& job, WatchedJob& soft) {
  if (soft.proposed != 0 || job.goal != cluster::Goal::run || is_final(job.state)) return true;
  const auto terms = terms_.find(job.id);
  Instant until = terms == terms_.end() ? Instant{} : terms->second.too_wide_until;
  if (until <= c_.now.boot) until = may_run_unknown(job);
  if (until > c_.now.boot) {
    soft.look_by(until);
    return true;
  }
  if (job.doubted) return true;
  const JobRecord* before = job.follows == 0 ? nullptr : c_.ledger.find(job.follows);
  if (before == nullptr || before->nothing_runs()) return false;
  jobs_.wait(job, soft, "the job of that name before it is ending");
  return true;
}

// Until when tasks may run under leases that nobody renews because a lost majority began them after the survivor's last entry.
Instant WaitingJobs::may_run_unknown(const JobRecord& job) const {
  const cluster::LedgerState& state = c_.ledger.state();
  if (!state.recovered || job.history == cluster::history_of(state.epoch)) return {};
  const auto wanted = cluster::wanted_tasks(job.spec);
  const bool leased = std::ranges::any_of(wanted, [&](const TaskId& id) { return job::wants_lease(job.spec, id); });
  return leased ? jobs_.at(*state.recovered + counted_lease(c_.options.lease)) : Instant{};
}

// A job that was preempted does not go back to its place while the job that got the place is between two generations;
// otherwise it would be preempted at each recovery of that job.
bool WaitingJobs::makes_way(const JobRecord& job, WatchedJob& soft) {
  const JobRecord* by = job.preempted.by == 0 ? nullptr : c_.ledger.find(job.preempted.by);
  if (by == nullptr || !between_generations(*by, c_.ledger.state(), c_.elapsed())) return false;
  soft.look_by(c_.now.boot + kLookEvery);
  jobs_.wait(job, soft, "preempted by " + job.preempted.name + ", which is about to go on");
  return true;
}

// The tasks for which a running generation wants places.
std::vector<TaskId> WaitingJobs::tasks_to_add(const JobRecord& job, WatchedJob& soft) const {
  std::vector<TaskId> missing;
  if (job.halt != cluster::Halt::none || job.generation == 0) return missing;
  const bool waits = job.still_since && c_.options.broken_rule != "elsewhere-waits-for-the-frozen";
  for (const TaskId& id : cluster::wanted_tasks(job.spec))
    if (const auto task = job.tasks.find(id); task == job.tasks.end() || (task->second.lost && !waits)) missing.push_back(id);
  watch_refusals(job, soft);
  // If all tasks with which the job runs are placed, and these are fewer than wanted, more can be added if the running
  // ones do not notice.
  if (missing.empty())
    for (const auto& [name, whole] : job.shrunk)
      for (std::uint32_t i = job.spec.roles.at(name).replicas; i < whole && cluster::scales_alone(job.spec, name); ++i)
        missing.push_back({name, i});
  if (!missing.empty() && cluster::begins_in_parts(job, c_.ledger.state().version)) missing.resize(1);
  return missing;
}

// The job's place may be on a host that refuses it: looked at again when the refusal is over.
void WaitingJobs::watch_refusals(const JobRecord& job, WatchedJob& soft) const {
  for (const auto& [host, refusal] : c_.ledger.refusals(job, c_.elapsed())) soft.look_by(jobs_.at(refusal.until));
}

// ---------------------------------------------------------------- with fewer tasks

// How long there must be no room for all of a job before it begins with fewer tasks: timing.downGrace, during which
// its hosts may come back. Time in which there is room and its checkpoint is being chosen does not count.
void WaitingJobs::watch_room(const JobRecord& job, WatchedJob& soft) {
  const auto terms = terms_.find(job.id);
  if (terms == terms_.end()) return;
  std::optional<Instant>& since = terms->second.short_since;
  if (!begins(job) || !cluster::may_shrink(job, c_.ledger.state().version)) return since.reset();
  if (soft.proposed != 0 || !since) return;
  const Instant until = *since + c_.options.down_grace;
  if (until > c_.now.boot) soft.look_by(until);
}

void WaitingJobs::note_room(const JobRecord& job, WatchedJob& soft, bool for_all) {
  std::optional<Instant>& since = terms_[job.id].short_since;
  if (for_all) return since.reset();
  if (!begins(job) || !cluster::may_shrink(job, c_.ledger.state().version)) return;
  if (!since) since = c_.now.boot;
  watch_room(job, soft);
}

// ---------------------------------------------------------------- for the queue

WaitingJobs::ForQueue WaitingJobs::for_queue() {
  ForQueue queue;
  for (const JobId id : unplaced_) {
    const JobRecord* job = c_.ledger.find(id);
    WatchedJob* soft = jobs_.find(id);
    if (job == nullptr || soft == nullptr) continue;
    if (const HeldPlaces* held = places_.held_for(id); held != nullptr && held->whole) continue;
    if (auto waiting = queue_entry(*job, *soft, queue.whole)) queue.jobs.push_back(std::move(*waiting));
  }
  return queue;
}

std::optional<cluster::WaitingJob> WaitingJobs::queue_entry(const JobRecord& job, WatchedJob& soft, std::deque<job::JobSpec>& whole) {
  cluster::WaitingJob entry;
  entry.tasks = tasks_to_place(job, soft);
  if (entry.tasks.empty()) return std::nullopt;
  entry.id = job.id;
  entry.spec = &job.spec;
  entry.submitted = job.created_elapsed;
  entry.runs_for = cluster::runs_for(job.spec);
  entry.resumes = job.run_started.has_value();
  entry.preempts = job.preempted.by == 0;
  entry.run = run_of(job);
  entry.refused = c_.ledger.refusals(job, c_.elapsed());
  if (no_host_can(job, entry)) {
    const auto why = std::ranges::find_if(entry.refused, [](const auto& r) { return r.second.for_good; });
    jobs_.propose(soft, job.id, CommandType::finish, cluster::FinishJob{job.id, cluster::JobState::failed, why->second.reason});
    return std::nullopt;
  }
  if (job.needs_generation) {
    const std::optional<Instant>& since = terms_[job.id].short_since;
    const bool waited = since && *since + c_.options.down_grace <= c_.now.boot;
    entry.least = cluster::fewest_tasks(job, waited, c_.ledger.state().version);
    entry.least_later = cluster::fewest_tasks(job, true, c_.ledger.state().version);
  }
  if (!job.shrunk.empty()) entry.spec = &whole.emplace_back(cluster::whole_spec(job));
  if (!job.needs_generation)
    for (const auto& [task, record] : job.tasks)
      if (!record.ended) entry.standing.push_back(record.place);
  // The places that its other tasks are about to move to count as taken by the job: otherwise, with antiAffinity,
  // two of its tasks could meet on one host.
  if (const HeldPlaces* held = places_.held_for(job.id))
    for (const cluster::TaskPlacement& place : held->placements)
      if (std::ranges::find(entry.tasks, place.task) == entry.tasks.end()) entry.standing.push_back(place);
  return entry;
}

// True if every host that could run the job refuses it for something that only its user can mend. A host that is away
// could be another one.
bool WaitingJobs::no_host_can(const JobRecord& job, const cluster::WaitingJob& waiting) const {
  cluster::Refusals for_good = waiting.refused;
  std::erase_if(for_good, [](const auto& entry) { return !entry.second.for_good; });
  const auto counts = c_.members->table().counts();
  if (for_good.empty() || !job.needs_generation || counts.suspect + counts.down + counts.dead > 0) return false;
  const cluster::Capacity empty = places_.empty();
  return !cluster::place(job.spec, waiting.tasks, empty, {}, for_good) && cluster::place(job.spec, waiting.tasks, empty);
}

}  // namespace dtrain::node
