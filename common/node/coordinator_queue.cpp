// The coordinator's waiting jobs: makes the queue's input from the ledger, and carries out its decisions.
#include <algorithm>
#include <deque>
#include <utility>

#include "common/base/lease.h"
#include "common/cluster/cluster_change.h"
#include "common/cluster/job_transition.h"
#include "common/node/cluster_members.h"
#include "common/node/coordinator.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;

// Decisions in a row, if one made room for the next or was incomplete; the rest waits for the next change.
constexpr int kDecisionsInARow = 16;

// Pause before looking again at a job that was placed on more hosts than may have tasks; meanwhile its places are
// free for others.
constexpr Duration kTooWideAgain = 5s;

bool stops(const JobRecord& job) {
  return (job.goal != cluster::Goal::run || is_final(job.state) || job.halt != cluster::Halt::none) && !job.leave_running;
}

// True if the job has a place, or is to get one, for its next generation.
bool begins(const JobRecord& job) {
  return job.goal == cluster::Goal::run && !is_final(job.state) && job.needs_generation && job.nothing_runs();
}

// A number that is the same before and after the proposal that begins the run is applied.
std::uint64_t run_of(const JobRecord& job) { return job.generation + (begins(job) ? 1 : 0); }

}  // namespace

Result<std::vector<cluster::TaskPlacement>> Coordinator::try_place(const job::JobSpec& spec) const {
  return cluster::place(spec, cluster::wanted_tasks(spec), capacity());
}

std::string Coordinator::waiting_for(JobId id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? "" : it->second.waiting;
}

// Until when tasks may run under leases that nobody renews because a lost majority began them after the survivor's last entry.
Instant Coordinator::may_run_unknown(const JobRecord& job) const {
  const cluster::LedgerState& state = c_.ledger.state();
  if (!state.recovered || job.history == cluster::history_of(state.epoch)) return {};
  const auto wanted = cluster::wanted_tasks(job.spec);
  const bool leased = std::ranges::any_of(wanted, [&](const TaskId& id) { return job::wants_lease(job.spec, id); });
  return leased ? at(*state.recovered + counted_lease(c_.options.lease)) : Instant{};
}

// The tasks of the job that want a place now. Empty: it has a place, or waits for something else, for which
// soft.deadline is set.
std::vector<TaskId> Coordinator::tasks_to_place(const JobRecord& job, Job& soft) {
  if (soft.proposed != 0 || job.goal != cluster::Goal::run || is_final(job.state)) return {};
  if (soft.too_wide_until > c_.now.boot) {
    soft.deadline = std::min(soft.deadline, soft.too_wide_until);
    return {};
  }
  if (const Instant until = may_run_unknown(job); until > c_.now.boot) {
    soft.deadline = std::min(soft.deadline, until);
    return {};
  }
  if (job.doubted) return {};
  if (const JobRecord* before = job.follows == 0 ? nullptr : c_.ledger.find(job.follows); before != nullptr && !before->nothing_runs()) {
    wait(job, soft, "the job of that name before it is ending");
    return {};
  }
  if (job.needs_generation) {
    if (!job.nothing_runs() && c_.options.broken_rule != "kill-before-next-generation") return {};
    Instant until = job.not_before > c_.elapsed() ? at(job.not_before) : c_.now.boot;
    if (soft.choosing && soft.choosing->choice.from_scratch() == job.from_scratch && soft.choosing->retry != kNever)
      until = std::max(until, soft.choosing->retry);
    if (until <= c_.now.boot && makes_way(job, soft)) return {};
    if (until <= c_.now.boot) {
      watch_refusals(job, soft);
      return cluster::whole_tasks(job);
    }
    soft.deadline = std::min(soft.deadline, until);
    return {};
  }
  std::vector<TaskId> missing;
  if (job.halt != cluster::Halt::none || job.generation == 0) return missing;
  const bool waits = job.still_since && c_.options.broken_rule != "elsewhere-waits-for-the-frozen";
  for (const TaskId& id : cluster::wanted_tasks(job.spec))
    if (const auto task = job.tasks.find(id); task == job.tasks.end() || (task->second.lost && !waits)) missing.push_back(id);
  watch_refusals(job, soft);
  const bool in_parts = cluster::begins_in_parts(job, c_.ledger.state().version);
  if (!missing.empty()) return in_parts ? std::vector{missing.front()} : missing;
  // All tasks with which the job runs are placed. If these are fewer than wanted, more can be added if the running
  // ones do not notice.
  for (const auto& [name, whole] : job.shrunk)
    for (std::uint32_t i = job.spec.roles.at(name).replicas; i < whole && cluster::scales_alone(job.spec, name); ++i)
      missing.push_back({name, i});
  if (in_parts && !missing.empty()) missing.resize(1);
  return missing;
}

// The job's place may be on a host that refuses it: looked at again when the refusal is over.
void Coordinator::watch_refusals(const JobRecord& job, Job& soft) {
  for (const auto& [host, refusal] : c_.ledger.refusals(job, c_.elapsed())) soft.deadline = std::min(soft.deadline, at(refusal.until));
}

// True if every host that could run the job refuses it for something that only its user can mend. A host that is away
// could be another one.
bool Coordinator::no_host_can(const JobRecord& job, const cluster::WaitingJob& waiting) const {
  cluster::Refusals for_good = waiting.refused;
  std::erase_if(for_good, [](const auto& entry) { return !entry.second.for_good; });
  const auto counts = c_.members->table().counts();
  if (for_good.empty() || !job.needs_generation || counts.suspect + counts.down + counts.dead > 0) return false;
  const cluster::Capacity empty(host_capacities(c_), task_ports());
  return !cluster::place(job.spec, waiting.tasks, empty, {}, for_good) && cluster::place(job.spec, waiting.tasks, empty);
}

// How long there must be no room for all of a job before it begins with fewer tasks: timing.downGrace, during which
// its hosts may come back. Time in which there is room and its checkpoint is being chosen does not count.
void Coordinator::watch_room(const JobRecord& job, Job& soft) {
  if (!begins(job) || !cluster::may_shrink(job, c_.ledger.state().version)) return soft.short_since.reset();
  if (soft.proposed != 0 || !soft.short_since) return;
  const Instant until = *soft.short_since + c_.options.down_grace;
  if (until > c_.now.boot) soft.deadline = std::min(soft.deadline, until);
}

void Coordinator::note_room(const JobRecord& job, Job& soft, bool for_all) {
  if (for_all) return soft.short_since.reset();
  if (!begins(job) || !cluster::may_shrink(job, c_.ledger.state().version)) return;
  if (!soft.short_since) soft.short_since = c_.now.boot;
  watch_room(job, soft);
}

cluster::Sizes Coordinator::fewest_tasks(const JobRecord& job, const Job& soft) const {
  const bool waited = soft.short_since && *soft.short_since + c_.options.down_grace <= c_.now.boot;
  return cluster::fewest_tasks(job, waited, c_.ledger.state().version);
}

std::vector<cluster::RunningJob> Coordinator::running_jobs() const {
  std::map<JobId, cluster::RunningJob> running;
  const auto holds = [&](JobId id, const job::JobSpec& spec, const cluster::TaskPlacement& place) {
    cluster::RunningJob& job = running[id];
    job.id = id;
    job.spec = &spec;
    job.placements.push_back(place);
  };
  for (const auto& [id, job] : c_.ledger.state().jobs)
    for (const auto& [task, record] : job.tasks)
      if (!record.ended) holds(id, job.spec, record.place);
  for (const Booking& b : bookings_)
    for (const auto& place : b.placements) holds(b.job, b.spec, place);
  for (const auto& [id, held] : held_)
    for (const auto& place : held.placements) holds(id, held.spec, place);
  std::vector<cluster::RunningJob> list;
  for (auto& [id, entry] : running) {
    if (const JobRecord* job = c_.ledger.find(id)) {
      entry.started = job->created_elapsed;  // the same before and after its proposal is applied
      const auto most = cluster::runs_for(job->spec);
      if (most) entry.ends_by = job->run_started.value_or(c_.elapsed()) + *most;
      entry.ending = stops(*job) && !held_.contains(id);  // otherwise its own places would be counted as becoming free for others
      entry.returns = entry.ending && job->goal == cluster::Goal::run && job->needs_generation;
      entry.spared = held_.contains(id) || (!cluster::can_leave(*job) && !begins(*job));
      entry.run = run_of(*job);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

void Coordinator::start_waiting() {
  give_held_places();
  for (int i = 0; i < kDecisionsInARow && !unplaced_.empty(); ++i)
    if (!decide()) return;
}

std::string Coordinator::cluster_too_wide(const std::vector<cluster::TaskPlacement>& placements) const {
  const raft::Configuration& configuration = c_.replicated->raft().configuration();
  const auto counts = c_.members->table().counts();
  if (counts.alive + counts.suspect <= configuration.voters.size() + wire::kMostLearners) return "";  // nearly always true
  std::set<NodeId> busy = busy_hosts(c_.ledger);
  for (const Booking& b : bookings_)
    for (const auto& place : b.placements) busy.insert(place.node);
  return too_wide(configuration, std::move(busy), placements);
}

// Makes one decision of the queue. Returns true if the next can be made at once.
bool Coordinator::decide() {
  std::vector<cluster::WaitingJob> waiting;
  std::deque<job::JobSpec> whole;  // specs of jobs that ran with fewer tasks than wanted
  for (const JobId id : unplaced_) {
    const JobRecord* job = c_.ledger.find(id);
    const auto soft = jobs_.find(id);
    if (job == nullptr || soft == jobs_.end()) continue;
    if (const auto held = held_.find(id); held != held_.end() && held->second.whole) continue;  // its places are held
    cluster::WaitingJob entry;
    entry.tasks = tasks_to_place(*job, soft->second);
    if (entry.tasks.empty()) continue;
    entry.id = id;
    entry.spec = &job->spec;
    entry.submitted = job->created_elapsed;
    entry.runs_for = cluster::runs_for(job->spec);
    entry.resumes = job->run_started.has_value();
    entry.preempts = job->preempted.by == 0;
    entry.run = run_of(*job);
    entry.refused = c_.ledger.refusals(*job, c_.elapsed());
    if (no_host_can(*job, entry)) {
      const auto why = std::ranges::find_if(entry.refused, [](const auto& r) { return r.second.for_good; });
      propose(soft->second, id, CommandType::finish, cluster::FinishJob{id, cluster::JobState::failed, why->second.reason});
      continue;
    }
    if (job->needs_generation) {
      entry.least = fewest_tasks(*job, soft->second);
      entry.least_later = cluster::fewest_tasks(*job, true, c_.ledger.state().version);
    }
    if (!job->shrunk.empty()) entry.spec = &whole.emplace_back(cluster::whole_spec(*job));
    if (!job->needs_generation)
      for (const auto& [task, record] : job->tasks)
        if (!record.ended) entry.standing.push_back(record.place);
    // The places that its other tasks are about to move to count as taken by the job: otherwise, with antiAffinity,
    // two of its tasks could meet on one host.
    if (const auto held = held_.find(id); held != held_.end())
      for (const cluster::TaskPlacement& place : held->second.placements)
        if (std::ranges::find(entry.tasks, place.task) == entry.tasks.end()) entry.standing.push_back(place);
    waiting.push_back(std::move(entry));
  }
  if (waiting.empty()) return false;
  const cluster::Capacity free = capacity();
  note_hosts(free);
  cluster::Decision decision = queue_.decide(free, running_jobs(), std::move(waiting), c_.elapsed());
  bool again = decision.more;
  for (cluster::Start& start : decision.starts) {
    const JobRecord& job = *c_.ledger.find(start.job);
    Job& soft = jobs_.at(start.job);
    if (const std::string why = cluster_too_wide(start.placements); !why.empty()) {
      soft.too_wide_until = c_.now.boot + kTooWideAgain;
      soft.deadline = std::min(soft.deadline, soft.too_wide_until);  // this may be the last decision in a row
      wait(job, soft, why);
      again = true;
      continue;
    }
    if (job.needs_generation) note_room(job, soft, cluster::sizes_of(job, start.placements).empty());
    if (!job.needs_generation)
      extend(job, soft, std::move(start.placements));
    else if (!begin_generation(job, soft, std::move(start.placements)))
      again = true;
  }
  for (const cluster::Waits& w : decision.waits) {
    const JobRecord& job = *c_.ledger.find(w.job);
    note_room(job, jobs_.at(w.job), false);
    wait_in_queue(job, jobs_.at(w.job), w);
  }
  return preempt(decision.preemptions) || again;
}

// The ledger gets a new reason only when the kind of waiting changes. Numbers in it change with every start and end,
// and are shown only by the coordinator.
void Coordinator::wait_in_queue(const JobRecord& job, Job& soft, const cluster::Waits& waits) {
  std::string reason = waits.reason;
  if (job.preempted.by != 0) reason = "preempted by " + job.preempted.name + "; " + reason;
  if (soft.waits_as == waits.kind && !soft.waiting.empty() && is_told(job, soft)) {
    soft.waiting = std::move(reason);
    return;
  }
  wait(job, soft, reason);
  soft.waits_as = waits.kind;
}

// True if the ledger has, or is about to have, this reason; a user's action may have replaced it meanwhile.
bool Coordinator::is_told(const JobRecord& job, Job& soft) {
  if (job.reason == soft.told) soft.told_after.reset();
  return job.reason == soft.told || job.reason == soft.told_after;
}

// Sets the reason for a wait that involves no proposal; the job keeps its place in the queue.
void Coordinator::wait(const JobRecord& job, Job& soft, const std::string& reason, bool for_restore) {
  soft.waits_as.reset();
  const bool said = soft.waiting == reason && is_told(job, soft);
  soft.waiting = reason;
  // The reason in the ledger may be about to be replaced by one in flight that no longer holds: then the present
  // reason is proposed again.
  const bool replaced = soft.told_after == job.reason && soft.told != reason;
  if (said || (job.reason == reason && !replaced)) return;
  soft.told = reason;
  soft.told_after = job.reason;
  c_.propose(CommandType::waits, cluster::JobWaits{job.id, reason, for_restore});
}

void Coordinator::extend(const JobRecord& job, Job& soft, std::vector<cluster::TaskPlacement> placements) {
  soft.waiting.clear();
  unplaced_.erase(job.id);
  propose(soft, job.id, CommandType::extend_generation,
          cluster::BeginGeneration{job.id, job.generation, placements, {}, "", "", 0, {}});
  bookings_.push_back({soft.proposed, job.id, job.spec, std::move(placements)});
}

}  // namespace dtrain::node
