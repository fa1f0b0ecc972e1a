#include "tests/sim/council/operator.h"

#include <algorithm>

namespace dtrain::sim::council {
namespace {

using raft::ChangeKind;

constexpr Duration kActsEvery = 300ms;  // most
constexpr Duration kNoticed = 4s;       // a member that may not vote any more is replaced so soon
constexpr std::size_t kLearnersKept = 1;

}  // namespace

void Operator::begin() { later(); }

void Operator::later() {
  world_.after(Duration(static_cast<std::int64_t>(rng_.below(kActsEvery.count())) + 1), [this] {
    if (stopped_) return;
    act();
    later();
  });
}

bool Operator::settled() const {
  const auto leader = world_.ready_leader();
  if (!leader) return false;
  const raft::Configuration& configuration = world_.core(*leader)->configuration();
  return std::all_of(configuration.voters.begin(), configuration.voters.end(), [&](const MemberId& id) {
    const auto slot = world_.slot_of(id);
    if (!slot) return false;
    const Truth& truth = world_.truth(*slot);
    return truth.runs && !truth.paused && !truth.rolled_back && !truth.disk_failed && !truth.superseded &&
           world_.core(*slot)->configuration() == configuration && world_.durable_configuration(*slot) == configuration;
  });
}

std::optional<Slot> Operator::expendable() {
  if (!lost_.none() || !settled()) return std::nullopt;
  const auto& voters = world_.core(*world_.ready_leader())->configuration().voters;
  if (voters.size() < 3) return std::nullopt;
  return world_.slot_of(voters[rng_.below(voters.size())]);
}

// Removed, and no member's disk could bring it back.
bool Operator::removed(const MemberId& id) const {
  const auto leader = world_.ready_leader();
  if (!leader || world_.core(*leader)->configuration().has(id)) return false;
  for (Slot slot = 0; slot < world_.slots(); ++slot)
    if (world_.core(*leader)->configuration().has(world_.truth(slot).id) && world_.durable_configuration(slot).has(id)) return false;
  return true;
}

// Who may not vote any more begins anew, with an empty disk and another id.
void Operator::repair() {
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    const Truth& truth = world_.truth(slot);
    if (!truth.runs || truth.paused) continue;
    const raft::Mute mute = world_.core(slot)->mute();
    const bool muted = mute == raft::Mute::stale_life;
    // Those of an older history that have no leader find the newer one themselves.
    const bool led =
        truth.superseded && !world_.core(slot)->leader().none() && world_.core(slot)->history() == world_.disk(slot).hard.history;
    const bool useless = truth.rolled_back || led;
    if (!(muted && rng_.chance(1, 8)) && !(useless && world_.now() - truth.started > kNoticed && rng_.chance(1, 16))) continue;
    world_.kill(slot);
    world_.wipe(slot);
    world_.start(slot);
  }
  if (!lost_.none() && removed(lost_)) lost_ = {};
}

std::optional<MemberId> Operator::candidate(const raft::Configuration& configuration) {
  std::vector<MemberId> all;
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    const Truth& truth = world_.truth(slot);
    if (truth.runs && !truth.rolled_back && !truth.disk_failed && !configuration.has(truth.id)) all.push_back(truth.id);
  }
  if (all.empty()) return std::nullopt;
  return all[rng_.below(all.size())];
}

void Operator::resize(Slot leader) {
  const raft::Configuration configuration = world_.core(leader)->configuration();
  for (const auto* list : {&configuration.voters, &configuration.learners})
    for (const MemberId& id : *list) {
      const auto slot = world_.slot_of(id);
      if (!slot) return world_.change(leader, ChangeKind::remove, id);
    }
  if (!lost_.none()) return;
  if (by_council_) return decide(leader);
  if (resizing_ && world_.busy() && world_.now() >= resize_at_) {
    resize_at_ = world_.now() + 1s + Duration(static_cast<std::int64_t>(rng_.below(Duration(8s).count())));
    constexpr std::uint32_t kSizes[] = {1, 3, 3, 5};
    target_ = std::min<std::uint32_t>(kSizes[rng_.below(std::size(kSizes))], nodes_ < 3 ? 1 : nodes_ < 5 ? 3 : 5);
  }
  const std::size_t voters = configuration.voters.size();
  if (voters < target_ || (nodes_ == 2 && configuration.learners.empty())) {
    if (voters < target_ && !configuration.learners.empty())
      return world_.change(leader, ChangeKind::promote, configuration.learners[rng_.below(configuration.learners.size())]);
    if (const auto id = candidate(configuration)) world_.change(leader, ChangeKind::add_learner, *id);
    return;
  }
  if (voters > target_) {
    const MemberId& id = configuration.voters[rng_.below(voters)];
    return world_.change(leader, rng_.chance(1, 2) ? ChangeKind::demote : ChangeKind::remove, id);
  }
  if (configuration.learners.size() > kLearnersKept)
    return world_.change(leader, ChangeKind::remove, configuration.learners[rng_.below(configuration.learners.size())]);
  // The same size with others in it.
  if (resizing_ && world_.busy() && rng_.chance(1, 16))
    if (const auto id = candidate(configuration)) world_.change(leader, ChangeKind::add_learner, *id);
}

// Several changes at once, at whoever thinks that he leads.
void Operator::ask_hastily() {
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    if (!world_.core(slot) || world_.core(slot)->role() != raft::Role::leader) continue;
    for (std::uint64_t left = 1 + rng_.below(3); left > 0 && world_.core(slot); --left) {
      const raft::Configuration configuration = world_.core(slot)->configuration();
      const std::size_t voters = configuration.voters.size();
      const std::uint64_t die = rng_.below(4);
      // With a voter lost for ever, to demote another that is alive may leave no majority at all.
      const bool all_there =
          std::ranges::all_of(configuration.voters, [this](const MemberId& id) { return world_.slot_of(id).has_value(); });
      if (!all_there) break;
      if (die == 0) {
        if (const auto id = candidate(configuration)) world_.change(slot, ChangeKind::add_learner, *id);
      } else if (die == 1 && !configuration.learners.empty()) {
        world_.change(slot, ChangeKind::promote, configuration.learners[rng_.below(configuration.learners.size())]);
      } else if (voters > 1) {
        world_.change(slot, die == 2 ? ChangeKind::demote : ChangeKind::remove, configuration.voters[rng_.below(voters)]);
      }
    }
  }
}

void Operator::act() {
  repair();
  if (hasty_ && world_.busy() && lost_.none() && rng_.chance(1, 4)) return ask_hastily();
  if (const auto leader = world_.ready_leader()) resize(*leader);
}

}  // namespace dtrain::sim::council
