// The operator lets cluster::next_council_step() decide, told what gossip would tell: who is alive since
// when, who left.
#include <algorithm>

#include "tests/sim/council/operator.h"

namespace dtrain::sim::council {
namespace {

using cluster::CouncilMember;
using cluster::CouncilStep;

constexpr Duration kReplaceAfter = 4s;  // a minute of the world is a day of a cluster
constexpr Duration kProvenAfter = 2s;
constexpr Duration kLeavesAfter = 6s;  // at least, the one after the other

}  // namespace

// Who is stopped or dead is told dead at once, and alive when it runs; who lost its disk has left.
void Operator::keep_members() {
  for (auto& [id, member] : members_) {
    if (world_.slot_of(id) || member.state == CouncilMember::State::left) continue;
    member.state = CouncilMember::State::left;
    member.since = world_.now();
  }
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    const Truth& truth = world_.truth(slot);
    const bool well = truth.runs && !truth.paused && !truth.rolled_back && !truth.disk_failed;
    const auto [at, fresh] = members_.try_emplace(truth.id);
    CouncilMember& member = at->second;
    if (!fresh && member.state == CouncilMember::State::left) continue;
    const auto state = well ? CouncilMember::State::alive : CouncilMember::State::dead;
    if (!fresh && member.state == state) continue;
    member = {truth.id, truth.name, std::string(1, static_cast<char>('a' + slot % 3)), state, world_.now(), false};
  }
}

// For good: once no disk has it in its configuration the machine comes back as another member.
void Operator::let_one_leave() {
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    const MemberId id = world_.truth(slot).id;
    if (members_.at(id).state != CouncilMember::State::left || !removed(id)) continue;
    world_.kill(slot);
    world_.wipe(slot);
    world_.start(slot);
  }
  keep_members();  // who came back is another member
  if (!world_.busy() || world_.now() < leave_at_ || !settled() || !rng_.chance(1, 8)) return;
  leave_at_ = world_.now() + kLeavesAfter;
  CouncilMember& member = members_.at(world_.truth(static_cast<Slot>(rng_.below(world_.slots()))).id);
  if (rng_.chance(1, 2)) {
    member.never = !member.never;
  } else if (member.state == CouncilMember::State::alive) {
    member.state = CouncilMember::State::left;
    member.since = world_.now();
  }
}

CouncilStep Operator::council_step(Slot leader) const {
  const raft::Raft& core = *world_.core(leader);
  cluster::CouncilView view;
  view.self = core.id();
  view.configuration = core.configuration();
  view.followers = world_.followers(leader);
  view.last_index = core.last_index();
  for (const auto& [id, member] : members_) view.members.push_back(member);
  cluster::CouncilOptions options;
  options.replace_after = kReplaceAfter;
  options.proven_after = kProvenAfter;
  options.heard_within = world_.options().election_max;
  options.caught_up_lag = world_.options().promote_lag;
  return cluster::next_council_step(view, world_.now(), options);
}

void Operator::decide(Slot leader) {
  keep_members();
  let_one_leave();
  if (!world_.core(leader) || !world_.core(leader)->ready()) return;
  const CouncilStep step = council_step(leader);
  if (step.act == CouncilStep::Act::transfer) world_.tell(leader, raft::TransferAsked{step.member});
  if (step.act == CouncilStep::Act::change) world_.change(leader, step.change, step.member);
}

// Everything is well since long: the council is what it is to be, unless nobody else may vote.
void Operator::stop() {
  stopped_ = true;
  const auto leader = world_.ready_leader();
  if (!by_council_ || !leader) return;
  keep_members();
  const raft::Configuration& configuration = world_.core(*leader)->configuration();
  const bool others = std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const CouncilMember& member = entry.second;
    return member.state == CouncilMember::State::alive && !member.never && !configuration.votes(member.id);
  });
  const CouncilStep step = council_step(*leader);
  if (step.act == CouncilStep::Act::nothing && (!others || (step.rests() && configuration.voters.size() % 2 == 1))) return;
  world_.violation("council_settles", std::to_string(configuration.voters.size()) + " voters, and still: " + step.why);
}

}  // namespace dtrain::sim::council
