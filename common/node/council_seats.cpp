#include "common/node/council_seats.h"

#include <algorithm>
#include <utility>

#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"

namespace dtrain::node {
namespace {

using State = cluster::CouncilMember::State;

std::string label(const std::map<std::string, std::string>& labels, const std::string& key) {
  const auto found = labels.find(key);
  return found == labels.end() ? "" : found->second;
}

const char* to_string(raft::ChangeKind change) {
  switch (change) {
    case raft::ChangeKind::add_learner: return "add-learner";
    case raft::ChangeKind::promote: return "promote";
    case raft::ChangeKind::demote: return "demote";
    case raft::ChangeKind::remove: return "remove";
  }
  return "";
}

}  // namespace

cluster::CouncilView CouncilSeats::view() {
  const raft::Raft& raft = c_.replicated->raft();
  cluster::CouncilView view{raft.id(), raft.configuration(), raft.followers(c_.now.boot), raft.last_index(), {}};
  std::map<MemberId, Held> states;
  const std::set<NodeId> busy = busy_hosts(c_.ledger);
  const auto needs_copy = [&](const NodeId& id, State state) {
    return busy.contains(id) || (c_.ledger.state().lost.contains(id) && wire::in_service(state));
  };
  c_.members->table().each([&](const gossip::MemberView& m) {
    const MemberId id = m.identity->id;
    const State state = leaving_ && id == raft.id() ? State::left : m.state;
    const auto before = states_.find(id);
    const bool same = before != states_.end() && before->second.state == state;
    states[id] = same ? before->second : Held{state, c_.now.boot};
    const cluster::HostCapacity* host = id == raft.id() ? nullptr : known_capacity(c_, m);
    const auto& labels = host != nullptr ? host->labels : c_.facts.labels;
    const CouncilFact fact = council_fact_of(m);
    const bool too_old = id != raft.id() && (fact.behind || fact.knows < versions_.coming());
    view.members.push_back({id, m.identity->name, label(labels, "zone"), state, states[id].since, label(labels, "council") == "never",
                            needs_copy(id.text(), state), too_old});
  });
  states_ = std::move(states);
  return view;
}

void CouncilSeats::jobs_changed(const std::set<JobId>& jobs) {
  if (!c_.serving || asked_ != 0 || next_ <= c_.now.boot) return;
  const raft::Configuration& configuration = c_.replicated->raft().configuration();
  const auto counts = c_.members->table().counts();
  const std::size_t members = counts.alive + counts.suspect + counts.down + counts.dead;
  if (members <= configuration.voters.size() + configuration.learners.size()) return;  // every member has a copy
  for (const JobId id : jobs)
    if (const cluster::JobRecord* job = c_.ledger.find(id))
      for (const auto& [task, t] : job->tasks)
        if (const auto host = MemberId::parse(t.place.node); host && !t.ended && !configuration.has(*host)) return touch();
}

void CouncilSeats::log_advanced() {
  if (!c_.serving || c_.storage_failed || asked_ != 0 || next_ > c_.now.boot) return;
  const cluster::CouncilView seen = view();
  next_ = kNever;
  if (seen.members.size() <= 1 && c_.replicated->alone() && seen.configuration.learners.empty()) return;
  const cluster::CouncilStep step = cluster::next_council_step(seen, c_.now.boot, {});
  next_ = std::max(step.again, c_.now.boot + cluster::CouncilOptions{}.look_while_busy);
  if (step.why != why_ && !step.why.empty()) c_.log.write(LogLevel::info, "council.waits", {{"reason", step.why}});
  why_ = step.why;
  switch (step.act) {
    case cluster::CouncilStep::Act::nothing: return;
    case cluster::CouncilStep::Act::change:
      asked_ = ++numbers_;
      c_.log.write(LogLevel::info, "council.changes",
                   {{"change", to_string(step.change)}, {"node", step.member.text()}, {"reason", step.why}});
      return c_.replicated->step(c_.now.boot, raft::ChangeAsked{asked_, step.change, step.member});
    case cluster::CouncilStep::Act::transfer: return c_.replicated->step(c_.now.boot, raft::TransferAsked{step.member});
  }
}

void CouncilSeats::answered(const raft::Answer& answer) {
  if (answer.number == 0 || answer.number != asked_) return;
  asked_ = 0;
  next_ = answer.refusal == raft::Refusal::none ? c_.now.boot : c_.now.boot + cluster::CouncilOptions{}.look_while_busy;
}

}  // namespace dtrain::node
