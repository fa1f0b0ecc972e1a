#include "common/node/drained_hosts.h"

#include <algorithm>
#include <set>

#include "common/cluster/job_transition.h"
#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;
using cluster::TaskPlacement;

// Jobs on drained hosts for which places are searched in one look; the next look continues after them.
constexpr int kMoveTries = 16;
// Pause between two updates in the ledger of why one job stays: numbers in the reason change with every start and end.
constexpr Duration kStaysPause = 5s;
// Pause between two attempts to hand leadership over. After the first attempt no job is moved meanwhile, because held
// places would be forgotten.
constexpr Duration kLeadElsewherePause = 3s;

std::vector<TaskPlacement> standing(const JobRecord& job, const std::vector<TaskId>& without) {
  std::vector<TaskPlacement> places;
  for (const auto& [id, t] : job.tasks)
    if (!t.ended && std::ranges::find(without, id) == without.end()) places.push_back(t.place);
  return places;
}

}  // namespace

void DrainedHosts::reset() {
  stays_said_.clear();
  tried_last_ = {};
  moves_wait_ = next_lead_elsewhere_ = {};
  if (leads_elsewhere_ != 0) led_elsewhere_ = std::exchange(leads_elsewhere_, 0);
}

void DrainedHosts::move_jobs() {
  const auto& drained = c_.ledger.state().drained;
  if (drained.empty() && places_.held().empty()) return;
  places_.drop_unused();
  std::erase_if(stays_said_,
                [&](const auto& said) { return !drained.contains(said.first.first) || c_.ledger.find(said.first.second) == nullptr; });
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
    WatchedJob* soft = jobs_.find(job.id);
    if (soft == nullptr || soft->proposed != 0 || places_.held_for(job.id) != nullptr) continue;
    if (!cluster::can_leave(job) && !(is_final(job.state) && job.leave_running)) continue;
    if (++tries > kMoveTries) return;
    tried_last_ = entry;
    move_from(entry.first, drained.at(entry.first), job, *soft);
  }
}

void DrainedHosts::move_from(const NodeId& host, const cluster::DrainedHost& drain, const JobRecord& job, WatchedJob& soft) {
  const bool forced = drain.deadline && *drain.deadline <= c_.elapsed();
  const cluster::MoveJob move{job.id, job.generation, host, forced, ""};
  const auto cannot = [&](const std::string& why) {
    if (!forced) stay(host, drain, job, why);
    else jobs_.propose(soft, job.id, CommandType::move_job, move);
  };
  if (is_final(job.state))
    return cannot("it has ended, and its cleanPodPolicy leaves them running; dtrainctl delete " + job.spec.name + " ends them");
  const std::vector<TaskId> there = cluster::tasks_on(job, host);
  const bool whole = !cluster::move_alone(job.spec, there);
  auto placed = places_elsewhere(job, there, whole);
  if (!placed) return cannot(placed.error().message);
  jobs_.propose(soft, job.id, CommandType::move_job, move);
  if (soft.proposed != 0) places_.held()[job.id] = {host, job.generation, soft.proposed, whole, job.spec, std::move(*placed)};
}

// For these tasks of the job, or for all if it moves as a `whole`.
Result<std::vector<TaskPlacement>> DrainedHosts::places_elsewhere(const JobRecord& job, const std::vector<TaskId>& there,
                                                                  bool whole) const {
  const cluster::Refusals refused = c_.ledger.refusals(job, c_.elapsed());
  if (whole) return cluster::place(job.spec, cluster::wanted_tasks(job.spec), places_.free_without(job), {}, refused);
  return cluster::place(job.spec, there, places_.free(), standing(job, there), refused);
}

void DrainedHosts::stay(const NodeId& host, const cluster::DrainedHost& drain, const JobRecord& job, const std::string& why) {
  const auto said = drain.stays.find(job.id);
  if (said != drain.stays.end() && said->second == why) return;
  Instant& last = stays_said_[{host, job.id}];
  if (last != Instant{} && last + kStaysPause > c_.now.boot) return;
  last = c_.now.boot;
  c_.propose(CommandType::move_job, cluster::MoveJob{job.id, job.generation, host, false, why});
}

void DrainedHosts::lead_elsewhere(bool in_the_middle) {
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
  if (in_the_middle && moves_wait_ > c_.now.boot) return;  // the next look may find nothing in flight; but this does not wait for ever
  next_lead_elsewhere_ = c_.now.boot + kLeadElsewherePause;
  c_.log.write(LogLevel::info, "council.hands-over",
               {{"node", host_name(c_, best->id.text())}, {"reason", "host " + c_.facts.name + " is drained"}});
  c_.replicated->step(c_.now.boot, raft::TransferAsked{best->id});
}

}  // namespace dtrain::node
