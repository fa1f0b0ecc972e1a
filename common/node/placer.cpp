#include "common/node/placer.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "common/cluster/job_transition.h"
#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;
using cluster::TaskPlacement;

// Decisions in a row, if one made room for the next or was incomplete; the rest waits for the next change.
constexpr int kDecisionsInARow = 16;

bool stops(const JobRecord& job) {
  return (job.goal != cluster::Goal::run || is_final(job.state) || job.halt != cluster::Halt::none) && !job.leave_running;
}

}  // namespace

void Placer::give_places() {
  give_held_places();
  for (int i = 0; i < kDecisionsInARow && !waiting_.all().empty(); ++i)
    if (!decide()) return;
}

// ---------------------------------------------------------------- held places

void Placer::give_held_places() {
  auto& held = places_.held();
  for (auto it = held.begin(); it != held.end();) it = give_held(it->first, it->second) ? held.erase(it) : std::next(it);
}

// Returns true if nothing is to be held for the job any more.
bool Placer::give_held(JobId id, HeldPlaces& held) {
  const JobRecord* job = c_.ledger.find(id);
  WatchedJob* soft = jobs_.find(id);
  if (held.proposal != 0 || job == nullptr || soft == nullptr || !waiting_.all().contains(id) || held.whole != job->needs_generation ||
      held.generation != job->generation)
    return false;
  const std::vector<TaskId> tasks = waiting_.tasks_to_place(*job, *soft);
  std::vector<TaskPlacement> now, later;
  for (const auto& place : held.placements) (std::ranges::find(tasks, place.task) != tasks.end() ? now : later).push_back(place);
  if (now.empty()) return false;
  // If another number of tasks is wanted, or a host changed, the queue looks for places instead.
  if (held.whole && now.size() != cluster::wanted_tasks(job->spec).size() && now.size() != cluster::whole_tasks(*job).size()) return true;
  if (!places_.fits(id, held.spec, now)) return true;
  if (held.whole) return !begin_generation(*job, *soft, std::move(now)) || soft->proposed != 0;  // or its checkpoint is being chosen
  extend(*job, *soft, std::move(now));
  held.placements = std::move(later);
  return held.placements.empty();
}

// ---------------------------------------------------------------- the queue

// Makes one decision of the queue. Returns true if the next can be made at once.
bool Placer::decide() {
  WaitingJobs::ForQueue waiting = waiting_.for_queue();
  if (waiting.jobs.empty()) return false;
  const cluster::Capacity free = places_.free();
  note_hosts(free);
  cluster::Decision decision = queue_.decide(free, running_jobs(), std::move(waiting.jobs), c_.elapsed());
  bool again = decision.more;
  for (cluster::Start& s : decision.starts) again = !start(s) || again;
  for (const cluster::Waits& w : decision.waits) {
    const JobRecord& job = *c_.ledger.find(w.job);
    WatchedJob& soft = *jobs_.find(w.job);
    waiting_.note_room(job, soft, false);
    jobs_.wait_in_queue(job, soft, w);
  }
  return preempt(decision.preemptions) || again;
}

// Returns false if the job cannot begin now, so that its place is free for others.
bool Placer::start(cluster::Start& start) {
  const JobRecord& job = *c_.ledger.find(start.job);
  WatchedJob& soft = *jobs_.find(start.job);
  if (const std::string why = cluster_too_wide(start.placements); !why.empty()) {
    waiting_.too_wide(job, soft, why);
    return false;
  }
  if (!job.needs_generation) {
    extend(job, soft, std::move(start.placements));
    return true;
  }
  waiting_.note_room(job, soft, cluster::sizes_of(job, start.placements).empty());
  return begin_generation(job, soft, std::move(start.placements));
}

// Ends the victims, all for the same job. The queue chose them and reserves their places. The decision is in the log,
// so that the next coordinator finds them ending and ends no others. Nobody is ended for a job that could not begin
// then, so its checkpoint is found first. Returns true if that job has nothing to restore from, and the others are to be
// looked at without it.
bool Placer::preempt(const std::vector<cluster::Preemption>& victims) {
  if (victims.empty()) return false;
  const JobRecord& by = *c_.ledger.find(victims.front().beneficiary);
  WatchedJob& waits = *jobs_.find(by.id);
  const RestoreChooser::State restore = restores_.look(by, waits);
  if (restore != RestoreChooser::State::ready) return restore == RestoreChooser::State::blocked;
  waits.look_by(c_.now.boot + kLookEvery);
  for (const cluster::Preemption& p : victims) {
    const JobRecord* job = c_.ledger.find(p.victim);
    WatchedJob* soft = jobs_.find(p.victim);
    if (job == nullptr || soft == nullptr || soft->proposed != 0) continue;
    jobs_.propose(*soft, job->id, CommandType::preempt_job, cluster::PreemptJob{job->id, job->generation, by.id});
  }
  return false;
}

// Returns false if the job cannot begin now, so that its place is free for others.
bool Placer::begin_generation(const JobRecord& job, WatchedJob& soft, std::vector<TaskPlacement> placements) {
  const RestoreChooser::State restore = restores_.look(job, soft, placements);
  if (restore != RestoreChooser::State::ready) return restore == RestoreChooser::State::under_way;
  cluster::BeginGeneration begin;
  begin.job = job.id;
  const bool same_history = job.history == cluster::history_of(c_.ledger.state().epoch);
  begin.generation = job.generation + (same_history ? 1 : cluster::kGenerationsOfHistory);
  begin.sizes = cluster::sizes_of(job, placements);
  begin.placements = std::move(placements);
  restores_.take(job, begin);
  waiting_.placed(job, soft);
  jobs_.propose(soft, job.id, CommandType::begin_generation, begin);
  places_.booked().push_back({soft.proposed, job.id, job.spec, std::move(begin.placements)});
  return true;
}

void Placer::extend(const JobRecord& job, WatchedJob& soft, std::vector<TaskPlacement> placements) {
  waiting_.placed(job, soft);
  jobs_.propose(soft, job.id, CommandType::extend_generation,
                cluster::BeginGeneration{job.id, job.generation, placements, {}, "", "", 0, {}});
  places_.booked().push_back({soft.proposed, job.id, job.spec, std::move(placements)});
}

// ---------------------------------------------------------------- what the queue is told of the cluster

std::vector<cluster::RunningJob> Placer::running_jobs() const {
  std::map<JobId, cluster::RunningJob> running;
  const auto holds = [&](JobId id, const job::JobSpec& spec, const TaskPlacement& place) {
    cluster::RunningJob& job = running[id];
    job.id = id;
    job.spec = &spec;
    job.placements.push_back(place);
  };
  for (const auto& [id, job] : c_.ledger.state().jobs)
    for (const auto& [task, record] : job.tasks)
      if (!record.ended) holds(id, job.spec, record.place);
  for (const BookedPlaces& b : places_.booked())
    for (const auto& place : b.placements) holds(b.job, b.spec, place);
  for (const auto& [id, held] : places_.held())
    for (const auto& place : held.placements) holds(id, held.spec, place);
  std::vector<cluster::RunningJob> list;
  for (auto& [id, entry] : running) {
    if (const JobRecord* job = c_.ledger.find(id)) {
      const bool held = places_.held_for(id) != nullptr;
      entry.started = job->created_elapsed;  // the same before and after its proposal is applied
      const auto most = cluster::runs_for(job->spec);
      if (most) entry.ends_by = job->run_started.value_or(c_.elapsed()) + *most;
      entry.ending = stops(*job) && !held;  // otherwise its own places would be counted as becoming free for others
      entry.returns = entry.ending && job->goal == cluster::Goal::run && job->needs_generation;
      entry.spared = held || (!cluster::can_leave(*job) && !begins(*job));
      entry.run = run_of(*job);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::optional<std::vector<TaskPlacement>> Placer::room_for_all(const JobRecord& job) const {
  cluster::Capacity free = places_.free_without(job);
  const std::optional<cluster::Reservation>& reserved = queue_.reservation();
  const JobRecord* first = reserved && waiting_.all().contains(reserved->job) ? c_.ledger.find(reserved->job) : nullptr;
  // A job that ran goes before others of its priority: that one waits for its end, not for its next generation.
  const bool after = first != nullptr && first->spec.policy.priority <= job.spec.policy.priority &&
                     std::ranges::any_of(reserved->waits_for, [&](const cluster::StartedJob& run) { return run.job == job.id; });
  if (first != nullptr && !after) free.hold(cluster::whole_spec(*first), reserved->placements);
  auto placed = cluster::place(cluster::whole_spec(job), cluster::whole_tasks(job), free, {}, c_.ledger.refusals(job, c_.elapsed()));
  if (!placed || !cluster_too_wide(*placed).empty()) return std::nullopt;
  return std::move(*placed);
}

std::string Placer::cluster_too_wide(const std::vector<TaskPlacement>& placements) const {
  const raft::Configuration& configuration = c_.replicated->raft().configuration();
  const auto counts = c_.members->table().counts();
  if (counts.alive + counts.suspect <= configuration.voters.size() + wire::kMostLearners) return "";  // nearly always true
  std::set<NodeId> busy = busy_hosts(c_.ledger);
  for (const BookedPlaces& b : places_.booked())
    for (const auto& place : b.placements) busy.insert(place.node);
  return too_wide(configuration, std::move(busy), placements);
}

bool Placer::hosts_differ() {
  note_hosts(places_.empty());
  return std::exchange(hosts_differ_, false);
}

// A host may go and come back between two looks, so jobs that were looked at in between are looked at again.
void Placer::note_hosts(const cluster::Capacity& hosts) {
  if (std::exchange(shape_, hosts.shape()) != hosts.shape()) hosts_differ_ = true;
}

}  // namespace dtrain::node
