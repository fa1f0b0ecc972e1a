#include "common/node/leases.h"

#include <algorithm>
#include <utility>

#include "common/node/cluster_members.h"

namespace dtrain::node {

Leases::Leases(Context& context)
    : c_(context), grants_({context.options.lease, context.options.agent_grace, kLeaseRequests, context.options.broken_rule}) {}

// ---------------------------------------------------------------- of this host

void Leases::ask(const LeaseAsked& asked) {
  const wire::LeaseRequest request{asked.id, asked.attempt, asked.nonce};
  const raft::Raft& raft = c_.replicated->raft();
  if (c_.serving) return requested(raft.id(), request);
  const auto leader = raft.leader().none() ? std::nullopt : c_.members->table().find(raft.leader());
  if (!leader || raft.leader() == raft.id()) return;
  c_.emit(SendLog{leader->identity->address, raft.leader(), c_.members->header(), request});
}

// This copy of the log follows a later coordinator already, which may have given the task to another host.
void Leases::received(const wire::LeaseAnswer& answer) {
  if (answer.epoch < c_.replicated->epoch() && c_.options.broken_rule != "epoch-fence") return;
  answers_.push_back({answer.id, answer.nonce, answer.granted, answer.epoch});
}

// ---------------------------------------------------------------- of the coordinator

void Leases::begin() {
  began_ = c_.now.boot;
  grants_.begin(c_.now.boot);
  placed_.clear();
}

void Leases::end() {
  grants_.end();
  placed_.clear();
}

void Leases::job_changed(JobId id) {
  const cluster::JobRecord* job = c_.ledger.find(id);
  std::map<AssignmentId, NodeId> there;
  if (job != nullptr)
    for (const auto& [task, t] : job->tasks) {
      const auto host = MemberId::parse(t.place.node).value_or(kNameless);
      if (t.ended || !job::wants_lease(job->spec, task)) continue;
      const AssignmentId assignment{id, job->generation, task};
      grants_.placed(assignment, host, t.placed);
      if (t.lease > 0ns) grants_.leased(c_.now.boot, assignment, t.lease);
      there[assignment] = t.place.node;
    }
  const auto known = placed_.find(id);
  if (known != placed_.end())
    for (const auto& [assignment, node] : known->second)
      if (!there.contains(assignment)) grants_.removed(assignment);
  if (!there.empty()) placed_[id] = std::move(there);
  else if (known != placed_.end()) placed_.erase(known);
}

void Leases::requested(const MemberId& host, const wire::LeaseRequest& request) {
  if (!c_.serving || c_.storage_failed) return;
  cluster::LeaseOutputs out;
  grants_.request(c_.now.boot, {request.id, request.nonce, host}, out);
  settle(out);
}

void Leases::answered(const raft::Answer& answer) {
  cluster::LeaseOutputs out;
  if (answer.refusal == raft::Refusal::none && c_.serving) grants_.round_done(c_.now.boot, answer.number, out);
  else grants_.round_lost(answer.number, out);
  settle(out);
}

void Leases::settle(cluster::LeaseOutputs& out) {
  const std::uint64_t epoch = c_.replicated->epoch();
  for (const cluster::LeaseAnswer& answer : out.answers) {
    const cluster::LeaseRequest& of = answer.request;
    if (of.host == c_.replicated->raft().id()) {
      answers_.push_back({of.id, of.nonce, answer.granted, epoch});
    } else if (const auto member = c_.members->table().find(of.host)) {
      c_.emit(SendLog{member->identity->address, of.host, c_.members->header(), wire::LeaseAnswer{of.id, of.nonce, answer.granted, epoch}});
    }
  }
  if (out.begin_round != 0) c_.replicated->step(c_.now.boot, raft::ReadAsked{out.begin_round});
}

Instant Leases::over_at(const NodeId& host, const cluster::HostAway& away) const {
  const auto lost = c_.ledger.state().lost.find(host);
  const std::uint64_t said = lost == c_.ledger.state().lost.end() ? 0 : lost->second.leases_over;
  const bool hasty = c_.options.broken_rule == "lease-counted-out";
  std::optional<Instant> at;
  for (const auto& [id, placed] : placed_) {
    for (const auto& [assignment, node] : placed) {
      if (node != host) continue;
      const cluster::TaskRecord& t = c_.ledger.find(id)->tasks.at(assignment.task);
      if (t.lease == 0ns || t.leased <= said || !c_.ledger.heard(host)) continue;
      at = std::max(at.value_or(Instant{}), hasty ? c_.now.boot : grants_.over_at(assignment, away));
    }
  }
  return at.value_or(kNever);
}

Leases::Frozen Leases::frozen(JobId id) const {
  Frozen found;
  const auto placed = placed_.find(id);
  if (placed == placed_.end()) return found;
  for (const auto& [assignment, node] : placed->second) {
    // A task that has not begun, has ended, or is frozen by an order asks for no grant.
    const cluster::TaskRecord& t = c_.ledger.find(id)->tasks.at(assignment.task);
    if (t.lease == 0ns || (t.state != job::TaskState::running && !t.lease_frozen)) continue;
    const cluster::Renewed renewed = grants_.renewed(assignment);
    found.none = found.none && renewed.granted && renewed.until > c_.now.boot;
    if (renewed.until > c_.now.boot) found.next = std::min(found.next, renewed.until);
    else if (!found.one) found.one = assignment;
  }
  return found;
}

void Leases::decide(const NodeId& host, bool decided) {
  for (const auto& [id, placed] : placed_)
    for (const auto& [assignment, node] : placed) {
      if (node != host) continue;
      if (decided) grants_.decided(assignment);
      else grants_.restored(assignment);
    }
}

}  // namespace dtrain::node
