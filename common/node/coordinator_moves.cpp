// The coordinator's drained hosts: a job leaves one when it has places elsewhere, which are held until it takes them;
// otherwise it stays, with a reason. Only the outcome is in the log: the next coordinator begins anew, and jobs that
// were halted already wait in the queue.
#include <algorithm>
#include <set>
#include <utility>

#include "common/cluster/job_transition.h"
#include "common/node/cluster_members.h"
#include "common/node/coordinator.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;

// Jobs on drained hosts for which places are searched in one look; the next look continues after them.
constexpr int kMoveTries = 16;
// Pause between two updates in the ledger of why one job stays: numbers in the reason change with every start and end.
constexpr Duration kStaysPause = 5s;
// Pause between two attempts to hand leadership over. After the first attempt no job is moved meanwhile, because held
// places would be forgotten.
constexpr Duration kLeadElsewherePause = 3s;

std::vector<cluster::TaskPlacement> standing(const JobRecord& job, const std::vector<TaskId>& without) {
  std::vector<cluster::TaskPlacement> places;
  for (const auto& [id, t] : job.tasks)
    if (!t.ended && std::ranges::find(without, id) == without.end()) places.push_back(t.place);
  return places;
}

}  // namespace

// Goes through each drained host and each job with tasks there. Jobs that could not move are tried again at each
// look, and whenever something becomes free.
void Coordinator::move_jobs() {
  const auto& drained = c_.ledger.state().drained;
  if (drained.empty() && held_.empty()) return;
  drop_unused_holds();
  std::erase_if(stays_said_, [&](const auto& said) {
    return !drained.contains(said.first.first) || c_.ledger.find(said.first.second) == nullptr;
  });
  if (drained.empty() || moves_wait_ > c_.now.boot) return;
  std::set<std::pair<NodeId, JobId>> there;
  for (const auto& [id, job] : c_.ledger.state().jobs)
    for (const auto& [task, t] : job.tasks)
      if (!t.ended && !t.moving && drained.contains(t.place.node)) there.emplace(t.place.node, id);
  std::vector<std::pair<NodeId, JobId>> order(there.upper_bound(tried_last_), there.end());
  order.insert(order.end(), there.begin(), there.upper_bound(tried_last_));
  int tries = 0;
  for (const auto& entry : order) {
    const JobRecord& job = *c_.ledger.find(entry.second);
    const auto soft = jobs_.find(job.id);
    if (soft == jobs_.end() || soft->second.proposed != 0 || held_.contains(job.id)) continue;
    if (!cluster::can_leave(job) && !(is_final(job.state) && job.leave_running)) continue;
    if (++tries > kMoveTries) return;
    tried_last_ = entry;
    move_from(entry.first, drained.at(entry.first), job, soft->second);
  }
}

// True if the drain's deadline has passed.
bool Coordinator::is_over(const cluster::DrainedHost& drain) const { return drain.deadline && *drain.deadline <= c_.elapsed(); }

void Coordinator::move_from(const NodeId& host, const cluster::DrainedHost& drain, const JobRecord& job, Job& soft) {
  const bool forced = is_over(drain);
  const auto cannot = [&](const std::string& why) {
    if (!forced)
      stay(host, drain, job, why);
    else
      propose(soft, job.id, CommandType::move_job, cluster::MoveJob{job.id, job.generation, host, true, ""});
  };
  if (is_final(job.state))
    return cannot("it has ended, and its cleanPodPolicy leaves them running; dtrainctl delete " + job.spec.name + " ends them");
  const std::vector<TaskId> there = cluster::tasks_on(job, host);
  const bool whole = !cluster::move_alone(job.spec, there);
  cluster::Capacity free = capacity();
  std::vector<cluster::TaskPlacement> stands;
  if (whole) {  // all its tasks end, but their ports rest
    const std::vector<cluster::TaskPlacement> own = standing(job, {});
    free.release(job.spec, own);
    for (const auto& place : own)
      if (const auto h = free.find(place.node); h && place.address.port != 0) free.take_port(*h, place.address.port);
  } else {
    stands = standing(job, there);
  }
  auto placed = cluster::place(job.spec, whole ? cluster::wanted_tasks(job.spec) : there, free, stands,
                               c_.ledger.refusals(job, c_.elapsed()));
  if (!placed) return cannot(placed.error().message);
  propose(soft, job.id, CommandType::move_job, cluster::MoveJob{job.id, job.generation, host, forced, ""});
  if (soft.proposed != 0) held_[job.id] = {host, job.generation, soft.proposed, whole, job.spec, std::move(*placed)};
}

void Coordinator::stay(const NodeId& host, const cluster::DrainedHost& drain, const JobRecord& job, const std::string& why) {
  const auto said = drain.stays.find(job.id);
  if (said != drain.stays.end() && said->second == why) return;
  Instant& last = stays_said_[{host, job.id}];
  if (last != Instant{} && last + kStaysPause > c_.now.boot) return;
  last = c_.now.boot;
  c_.propose(CommandType::move_job, cluster::MoveJob{job.id, job.generation, host, false, why});
}

void Coordinator::drop_unused_holds() {
  if (held_.empty()) return;
  const auto hosts = host_capacities(c_);
  std::set<NodeId> there;
  for (const auto& host : hosts)
    if (host.schedulable && !host.no_copy) there.insert(host.id);
  std::erase_if(held_, [&](const auto& entry) {
    const Held& held = entry.second;
    const JobRecord* job = c_.ledger.find(entry.first);
    if (job == nullptr || is_final(job->state) || job->goal != cluster::Goal::run || job->generation != held.generation ||
        !c_.ledger.state().drained.contains(held.host))
      return true;
    if (std::ranges::any_of(held.placements, [&](const auto& place) { return !there.contains(place.node); })) return true;
    if (held.proposal != 0) return false;
    if (held.whole) return !job->needs_generation;
    return job->needs_generation || std::ranges::none_of(held.placements, [&](const auto& place) {
             const auto t = job->tasks.find(place.task);
             return t != job->tasks.end() && (t->second.moving || t->second.lost);
           });
  });
}

// True if the held places are still free. Only a change of the hosts can have taken them.
bool Coordinator::fits(const JobId& id, const job::JobSpec& spec, const std::vector<cluster::TaskPlacement>& placements) const {
  cluster::Capacity free = capacity(id);
  for (const auto& place : placements) {
    const auto h = free.find(place.node);
    if (!h || !free.takes_tasks(*h)) return false;
    const std::uint64_t before = free.room(*h).gpus;
    free.hold(spec, {place});
    const cluster::Room& room = free.room(*h);
    std::uint64_t taken = before & ~room.gpus;
    std::size_t gpus = 0;
    for (; taken != 0; taken &= taken - 1) ++gpus;
    if (room.cpu_millis < 0 || room.memory_bytes < 0 || gpus != place.gpus.size()) return false;
  }
  return true;
}

// Gives held places to their jobs, before the queue decides for the other jobs.
void Coordinator::give_held_places() {
  for (auto it = held_.begin(); it != held_.end();) {
    const JobId id = it->first;
    Held& held = it->second;
    const JobRecord* job = c_.ledger.find(id);
    const auto soft = jobs_.find(id);
    const bool wants = held.proposal == 0 && job != nullptr && soft != jobs_.end() && unplaced_.contains(id) &&
                       held.whole == job->needs_generation && held.generation == job->generation;
    const std::vector<TaskId> tasks = wants ? tasks_to_place(*job, soft->second) : std::vector<TaskId>{};
    std::vector<cluster::TaskPlacement> now, later;
    for (const auto& place : held.placements) (std::ranges::find(tasks, place.task) != tasks.end() ? now : later).push_back(place);
    if (now.empty()) {
      ++it;
      continue;
    }
    // If another number of tasks is wanted, or a host changed, the queue looks for places instead.
    const bool good = (!held.whole || now.size() == cluster::wanted_tasks(job->spec).size()) && fits(id, held.spec, now);
    bool done = !good;
    if (good && held.whole) {
      const bool begins = begin_generation(*job, soft->second, std::move(now));
      done = !begins || soft->second.proposed != 0;  // otherwise its checkpoint is being chosen
    } else if (good) {
      extend(*job, soft->second, std::move(now));
      held.placements = std::move(later);
      done = held.placements.empty();
    }
    it = done ? held_.erase(it) : std::next(it);
  }
}

// A drained coordinator hands leadership to another voter, once for each drain. If it is elected again, it keeps leading.
void Coordinator::lead_elsewhere() {
  const auto& drained = c_.ledger.state().drained;
  const auto own = drained.find(c_.facts.id);
  if (own == drained.end()) {
    leads_elsewhere_ = 0;
    moves_wait_ = {};
    return;
  }
  if (own->second.index == led_elsewhere_ || !c_.among_others() || next_lead_elsewhere_ > c_.now.boot) return;
  const raft::FollowerView* best = nullptr;
  const auto followers = c_.replicated->raft().followers(c_.now.boot);
  for (const raft::FollowerView& follower : followers) {
    const auto member = c_.members->table().find(follower.id);
    if (!c_.replicated->raft().configuration().votes(follower.id) || !member || member->state != wire::MemberState::alive) continue;
    if (drained.contains(follower.id.text()) || follower.match == 0) continue;
    if (best == nullptr || follower.match > best->match) best = &follower;
  }
  if (best == nullptr) return;
  const bool first = leads_elsewhere_ != own->second.index;
  if (first) {
    leads_elsewhere_ = own->second.index;
    moves_wait_ = c_.now.boot + kLeadElsewherePause;
  }
  if (in_the_middle() && moves_wait_ > c_.now.boot) return;  // the next look may find nothing in flight; but this does not wait for ever
  next_lead_elsewhere_ = c_.now.boot + kLeadElsewherePause;
  c_.log.write(LogLevel::info, "council.hands-over",
               {{"node", host_name(c_, best->id.text())}, {"reason", "host " + c_.facts.name + " is drained"}});
  c_.replicated->step(c_.now.boot, raft::TransferAsked{best->id});
}

}  // namespace dtrain::node
