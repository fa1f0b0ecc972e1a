// The coordinator's view of the hosts: which may get tasks, and which are lost.
#include <algorithm>
#include <utility>

#include "common/base/duration_text.h"
#include "common/node/cluster_members.h"
#include "common/node/coordinator.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;
using HostSeen = cluster::HostSeen::State;

// Between two looks at the hosts when nothing indicates a change: changes of what a host has are not announced here.
constexpr Duration kLookEvery = 1s;
// An agent counts as back when it has been up for so long.
constexpr Duration kStaysBack = 10s;
// A job with tasks on several hosts is not failed earlier than this after its last fault: by then a silent host is suspected.
constexpr Duration kDoubtFor = 3s;
// Pause before a proposal that the log refused (it is handing over, or is full) is made again.
constexpr Duration kTryAgain = 200ms;
// A host that is up and was given tasks must have begun to copy the log after this time, or it counts as lost: the
// log does not reach it, or its disk fails. Longer than a snapshot takes, and longer than following a newer history
// takes (raft::Options). If more hosts need a snapshot than are sent one at a time, the time counts from the host's
// turn; while it waits for its turn, from when another host's copy arrived last.
constexpr Duration kCopyWithin = 1min;

}  // namespace

cluster::Capacity Coordinator::capacity(JobId except) const {
  std::vector<cluster::HostCapacity> hosts = host_capacities(c_);
  cluster::add_resting_ports(c_.ledger, hosts);
  cluster::Capacity free(std::move(hosts), task_ports());
  cluster::hold_used(c_.ledger, free);
  for (const Booking& b : bookings_) free.hold(b.spec, b.placements);
  for (const auto& [id, held] : held_)
    if (id != except) free.hold(held.spec, held.placements);
  return free;
}

bool Coordinator::has_others() const {
  const auto counts = c_.members->table().counts();
  return c_.among_others() || counts.alive + counts.suspect + counts.down + counts.dead > 1;
}

bool Coordinator::in_the_middle() const {
  const bool looks = std::ranges::any_of(jobs_, [](const auto& j) { return j.second.choosing && j.second.choosing->under_way(); });
  return looks || !proposals_.empty();
}

// A host may go and come back between two looks, so jobs that were looked at in between are looked at again.
void Coordinator::note_hosts(const cluster::Capacity& hosts) {
  if (std::exchange(shape_, hosts.shape()) != hosts.shape()) hosts_differ_ = true;
}

void Coordinator::look_at_hosts() {
  if (!c_.serving || c_.storage_failed) return;
  next_look_ = c_.now.boot + kLookEvery;
  if (!watches_hosts() && !std::exchange(drains_changed_, false)) return;
  drains_changed_ = false;
  if (has_others()) {
    watch_hosts();
    watch_leases();
  }
  lead_elsewhere();
  move_jobs();
  note_hosts(cluster::Capacity(host_capacities(c_), task_ports()));
  if (!std::exchange(hosts_differ_, false)) return;
  // A job that waits for a checkpoint looks again: the checkpoint's host may be back.
  for (const JobId id : unplaced_)
    if (const auto soft = jobs_.find(id); soft != jobs_.end() && soft->second.choosing && soft->second.choosing->retry != kNever)
      soft->second.choosing->retry = c_.now.boot;
  consider(std::set<JobId>(unplaced_));
}

void Coordinator::drains_changed() {
  drains_changed_ = true;
  look_at_hosts();
}

// A job stands still from the moment when a task of it must be frozen, long before its host is given up, until all
// its leases are granted again.
void Coordinator::watch_leases() {
  for (auto& [id, soft] : jobs_) {
    const JobRecord* job = c_.ledger.find(id);
    if (job == nullptr || is_final(job->state) || job->halt != cluster::Halt::none || soft.proposed != 0) continue;
    const Leases::Frozen frozen = leases_.frozen(id);
    next_look_ = std::min(next_look_, frozen.next);
    if (frozen.one.has_value() == !job->must_be_frozen.empty() || (!frozen.one && !frozen.none)) continue;
    std::string because;
    NodeId host;
    if (frozen.one) {
      host = job->tasks.at(frozen.one->task).place.node;
      because = frozen.one->task.text() + " on " + host_name(c_, host) + " must be frozen: its lease was not renewed";
    }
    propose(soft, id, CommandType::job_still, cluster::JobStill{id, job->generation, std::move(because), std::move(host)});
  }
}

// A task that failed for good may have done so because a host with other tasks of the job is being lost, or was stopped.
// That shows soon: a silent host is suspected and then lost, and a host that is back reports what ended with it. Nothing
// is known of a host that nobody has seen since this agent's start. A task that has ended has reported how.
void Coordinator::watch_doubt(const JobRecord& job, Job& soft) {
  if (job.goal != cluster::Goal::run) return;
  const auto is_away = [&](const auto& entry) {
    const auto id = MemberId::parse(entry.second.place.node);
    if (!id || entry.second.ended || entry.second.place.node == c_.facts.id) return false;
    const auto member = c_.members->table().find(*id);
    return !member || member->state != wire::MemberState::alive;
  };
  if (std::ranges::any_of(job.tasks, is_away)) {
    soft.all_there_since = kNever;
    soft.deadline = std::min(soft.deadline, c_.now.boot + kLookEvery);
    return;
  }
  if (soft.all_there_since == kNever) soft.all_there_since = c_.now.boot;
  const Instant settled = std::max(at(*job.doubted), soft.all_there_since) + kDoubtFor;
  if (settled <= c_.now.boot)
    propose(soft, job.id, CommandType::finish, cluster::FinishJob{job.id, cluster::JobState::failed, job.doubt});
  else
    soft.deadline = std::min({soft.deadline, settled, c_.now.boot + kLookEvery});
}

// Tasks placed on such a host have not begun, because a task begins only after its host has reported, through the log,
// that it is staged. What began there in an older history, and must not run twice, is kept by the ledger (Ledger::heard).
void Coordinator::watch_copy(const NodeId& id, const std::string& name, bool waits) {
  WithoutCopy& without = without_copy_.try_emplace(id, WithoutCopy{c_.now.boot}).first->second;
  if (waits)
    without.since = std::max(without.since, copy_came_);
  else if (without.waits)
    without.since = c_.now.boot;
  without.waits = waits;
  const Instant due = without.since + kCopyWithin;
  if (losing_.contains(id) || c_.ledger.state().lost.contains(id)) return;
  if (due > c_.now.boot) {
    next_look_ = std::min(next_look_, due);
    return;
  }
  const std::uint64_t index = c_.propose(CommandType::host_lost, cluster::HostLost{id, name, false, 0});
  if (index == 0) {
    next_look_ = std::min(next_look_, c_.now.boot + kTryAgain);
    return;
  }
  losing_[id] = index;
  c_.log.write(LogLevel::warn, "host.without-copy",
               {{"node", name},
                {"reason", "it is alive and was given tasks, and has got no copy of the log for " + duration_text(kCopyWithin)},
                {"next", "look at its agent's log and at its disk"}});
}

// An agent that ends again and again counts as away since the first time, not for a moment each time.
void Coordinator::came_back(const NodeId& id) {
  const auto away = away_.find(id);
  if (away == away_.end()) return;
  if (away->second.back == Instant{}) away->second.back = c_.now.boot;
  if (c_.now.boot - away->second.back >= kStaysBack) away_.erase(away);
}

// What membership sees is not in the log: it becomes a command, which all replicas apply at the same place.
void Coordinator::watch_hosts() {
  const std::set<NodeId> busy = busy_hosts(c_.ledger);
  std::erase_if(away_, [&](const auto& entry) { return !busy.contains(entry.first); });
  std::erase_if(without_copy_, [&](const auto& entry) { return !busy.contains(entry.first); });
  std::set<MemberId> copying, waiting;
  for (const raft::FollowerView& follower : c_.replicated->raft().followers(c_.now.boot)) {
    if (follower.match == 0 && follower.waits) waiting.insert(follower.id);
    if (follower.match == 0) continue;
    copying.insert(follower.id);
    if (without_copy_.contains(follower.id.text())) copy_came_ = c_.now.boot;
  }
  for (const NodeId& id : busy) {
    const auto member_id = MemberId::parse(id);
    const auto member = member_id ? c_.members->table().find(*member_id) : std::nullopt;
    // No member has spoken of the host since this agent's start: it is waited for like a host whose agent is down.
    const bool absent = member_id && !member && id != c_.facts.id;
    if (!absent && (id == c_.facts.id || !member || wire::in_service(member->state))) {
      came_back(id);
      if (id == c_.facts.id || !member || copying.contains(*member_id))
        without_copy_.erase(id);
      else
        watch_copy(id, member->identity->name, waiting.contains(*member_id));
      continue;
    }
    without_copy_.erase(id);
    if (losing_.contains(id)) continue;
    cluster::HostLost lost{id, host_name(c_, id), !absent && member->state == wire::MemberState::left, 0,
                           !absent && member->state != wire::MemberState::dead};
    const bool down = absent || member->state == wire::MemberState::down;
    Away& away = away_.try_emplace(id, Away{c_.now.boot, {}}).first->second;
    away.back = {};
    const Instant since = away.since;
    Instant due = down ? since + c_.options.down_grace : since;
    const auto known = c_.ledger.state().lost.find(id);
    if (known != c_.ledger.state().lost.end() && known->second.gone >= lost.gone) {
      // After that, until its leases are over: nothing was placed there since.
      due = known->second.gone ? kNever : leases_.over_at(id, {down ? HostSeen::down : HostSeen::dead, since});
      lost.leases_over = c_.ledger.state().applied;
    }
    if (due > c_.now.boot) {
      next_look_ = std::min(next_look_, due);
      continue;
    }
    const std::uint64_t index = c_.propose(CommandType::host_lost, lost);
    if (index == 0) {
      next_look_ = std::min(next_look_, c_.now.boot + kTryAgain);
      continue;
    }
    losing_[id] = index;
    if (lost.leases_over != 0) leases_.decided(id);
  }
}

}  // namespace dtrain::node
