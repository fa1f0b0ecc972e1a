// The coordinator's hosts: which may be given tasks, which job can run on which of them only, and which are lost.
#include <algorithm>
#include <utility>

#include "common/node/cluster_members.h"
#include "common/node/coordinator.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using cluster::CommandType;
using cluster::JobRecord;
using HostSeen = cluster::HostSeen::State;

// Between two looks at the hosts where nothing says that they changed: what a host has, and how far it copies the log, come
// without a word.
constexpr Duration kLookEvery = 1s;
// A proposal that the log refused (it hands over, or is full) is made again after this.
constexpr Duration kTryAgain = 200ms;
// Between two hand-overs to hosts that must look for their jobs' checkpoints: time to look for those of this one.
constexpr Duration kHandOverPause = 3s;

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

// Checkpoints lie on one host, or in a directory that several have: where the one is gone for good, the coordinator's host is
// looked at, and the job goes on there if it has the newest that was ever seen (scanned()).
Coordinator::Bound Coordinator::bound(const JobRecord& job) const {
  const bool restores = job.spec.checkpoint && job.spec.checkpoint->restore != "never";
  if (restores && !job.from_scratch && job.generation > 0 && !job.tasks.empty()) {
    const NodeId& host = job.tasks.begin()->second.place.node;
    const auto lost = c_.ledger.state().lost.find(host);
    if (job.needs_generation && lost != c_.ledger.state().lost.end() && lost->second.gone)
      return {c_.facts.id, "its checkpoints were on " + host_name(c_, host) + ", which is gone", false};
    return {host, "its checkpoints are on " + host_name(c_, host) + " only", true};
  }
  if (job.spec.checkpoint) return {c_.facts.id, "its checkpoints are to be on the coordinator's host " + c_.facts.name, false};
  return {};
}

// It could be placed now, if only its host were there.
bool Coordinator::waits_for_its_host(const JobRecord& job, Job& soft) {
  const Bound to = bound(job);
  const bool lost = c_.ledger.state().lost.contains(to.host);
  const bool drained = c_.ledger.state().drained.contains(to.host);
  bound_.erase(job.id);
  if (to.host.empty() || (to.host == c_.facts.id && !lost && !drained)) return false;
  const bool coordinates = !to.coordinator || !job.needs_generation || to.host == c_.facts.id;
  const auto hosts = host_capacities(c_);
  note_hosts(cluster::Capacity(hosts, task_ports()));
  const bool there = !drained && std::ranges::any_of(hosts, [&](const auto& host) { return host.id == to.host; });
  if (there && coordinates) return false;
  bound_.insert(job.id);
  std::string reason = to.why;
  if (there) {
    reason += ": it goes on when " + host_name(c_, to.host) + " coordinates";
    hand_over_to(to.host, soft);
  } else {
    reason += ", which is " + (drained ? "drained" : host_state(c_, to.host));
    if (drained)
      reason += "; dtrainctl undrain " + host_name(c_, to.host) + " lets it go on there";
    else
      reason += "; dtrainctl restart " + job.spec.name + " --from-scratch gives up what was trained";
  }
  wait(job, soft, reason);
  return true;
}

bool Coordinator::in_the_middle() const {
  const bool looks = std::ranges::any_of(jobs_, [](const auto& j) { return j.second.choosing && j.second.choosing->token != 0; });
  return looks || !proposals_.empty();
}

// Only who coordinates looks for checkpoints, and only on its own disk.
void Coordinator::hand_over_to(const NodeId& host, Job& soft) {
  const auto id = MemberId::parse(host);
  if (!id || !c_.replicated->raft().configuration().votes(*id)) return;  // it may vote some day
  // Who has just been elected first looks for those of its own host: two such jobs would hand leadership to and fro for ever
  // (seed 1254 of three hosts).
  if (next_hand_over_ == Instant{}) next_hand_over_ = c_.now.boot + kHandOverPause;
  if (next_hand_over_ > c_.now.boot || in_the_middle()) {
    soft.deadline = std::min(soft.deadline, std::max(next_hand_over_, c_.now.boot + kTryAgain));
    return;
  }
  next_hand_over_ = c_.now.boot + kHandOverPause;
  soft.deadline = std::min(soft.deadline, next_hand_over_);
  c_.log.write(LogLevel::info, "council.hands-over",
               {{"node", host_name(c_, host)}, {"reason", "checkpoints of a job that is to go on are on that host"}});
  c_.replicated->step(c_.now.boot, raft::TransferAsked{*id});
}

// A host may go and come back between two looks: who was looked at meanwhile is looked at again (seed 527 of three hosts).
void Coordinator::note_hosts(const cluster::Capacity& hosts) {
  if (std::exchange(shape_, hosts.shape()) != hosts.shape()) hosts_differ_ = true;
}

void Coordinator::look_at_hosts() {
  if (!c_.serving || c_.storage_failed) return;
  next_look_ = c_.now.boot + kLookEvery;
  if (!watches_hosts() && !std::exchange(drains_changed_, false)) return;
  drains_changed_ = false;
  if (c_.among_others()) {
    watch_hosts();
    watch_leases();
  }
  lead_elsewhere();
  move_jobs();
  note_hosts(cluster::Capacity(host_capacities(c_), task_ports()));
  if (!std::exchange(hosts_differ_, false)) return;
  std::set<JobId> waiting = unplaced_;
  waiting.insert(bound_.begin(), bound_.end());
  consider(waiting);
}

void Coordinator::drains_changed() {
  drains_changed_ = true;
  look_at_hosts();
}

// A job stands still from when a task of it must be frozen, long before its host is given up, until all are granted again.
void Coordinator::watch_leases() {
  for (auto& [id, soft] : jobs_) {
    const JobRecord* job = c_.ledger.find(id);
    if (job == nullptr || is_final(job->state) || job->halt != cluster::Halt::none || soft.proposed != 0) continue;
    const Leases::Frozen frozen = leases_.frozen(id);
    next_look_ = std::min(next_look_, frozen.next);
    if (frozen.one.has_value() == !job->must_be_frozen.empty() || (!frozen.one && !frozen.none)) continue;
    std::string because;
    if (frozen.one) {
      const NodeId& host = job->tasks.at(frozen.one->task).place.node;
      because = frozen.one->task.text() + " on " + host_name(c_, host) + " must be frozen: its lease was not renewed";
    }
    propose(soft, id, CommandType::job_still, cluster::JobStill{id, job->generation, std::move(because)});
  }
}

// What membership sees is not in the log: it becomes a command, which all apply at the same place.
void Coordinator::watch_hosts() {
  const std::set<NodeId> busy = busy_hosts(c_.ledger);
  std::erase_if(away_, [&](const auto& entry) { return !busy.contains(entry.first); });
  for (const NodeId& id : busy) {
    const auto member_id = MemberId::parse(id);
    const auto member = member_id ? c_.members->table().find(*member_id) : std::nullopt;
    if (id == c_.facts.id || !member || wire::in_service(member->state)) {
      away_.erase(id);
      continue;
    }
    if (losing_.contains(id)) continue;
    cluster::HostLost lost{id, member->identity->name, member->state == wire::MemberState::left, 0};
    const bool down = member->state == wire::MemberState::down;
    const Instant since = away_.try_emplace(id, c_.now.boot).first->second;
    Instant due = down ? since + c_.options.down_grace : since;
    const auto known = c_.ledger.state().lost.find(id);
    if (known != c_.ledger.state().lost.end() && known->second.gone >= lost.gone) {
      // Then for what it has under leases: nothing more was placed there since.
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
