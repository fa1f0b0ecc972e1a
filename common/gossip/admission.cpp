// Decides who may take a name or an address (rule 6). One name is one member. A name in use is never given to
// another: its holder must have left, or have been away for the reclaim time and reaped, or be the same machine
// without its old data.
#include <algorithm>

#include "common/gossip/core.h"

namespace dtrain::gossip {

Core::Claim Core::claim(const wire::Identity& who, bool stranger) const {
  Claim claim;
  const auto look = [&](Slot slot) {
    const Member& holder = table_.at(slot);
    const wire::Identity& held = *holder.identity;
    if (held.id == who.id || holder.state() == State::left) return false;
    const bool same_place = held.name == who.name && held.address == who.address;
    // Members that others admitted are accepted: a name in use stays with the member that is known here, and the rest
    // is recorded as a conflict.
    if (!stranger && !same_place && (!holder.in_service() || held.name != who.name)) return false;
    claim.holder = slot;
    // Two processes cannot listen on one address: the old one is gone.
    claim.verdict = same_place ? Verdict::replaces : Verdict::taken;
    return claim.verdict == Verdict::taken;
  };
  table_.each_named(who.name, look);
  if (claim.verdict != Verdict::taken) table_.each_at(who.address, look);
  if (claim.verdict == Verdict::replaces && claim.holder == self_slot_) claim.verdict = Verdict::taken;
  if (claim.verdict == Verdict::free && stranger) {
    // Members of this node's record that have not come back since its start keep their names as well.
    for (const auto& [id, peer] : absent_)
      if (peer->name == who.name && id != who.id && peer->address != who.address && tombstones_.count(id) == 0 &&
          now_ - started_ < options_.reclaim) {
        claim.verdict = Verdict::taken;
        claim.why = "name " + who.name + " belongs to node " + id.text() + " of this cluster, not seen since this node's start";
      }
    return claim;
  }
  if (claim.verdict != Verdict::taken) return claim;
  const Member& holder = table_.at(claim.holder);
  const bool name = holder.identity->name == who.name;
  claim.why = std::string(name ? "name " : "address ") + (name ? who.name : who.address.text()) + " belongs to node " +
              holder.identity->name + " (" + holder.identity->id.text() + ", " + holder.identity->address.text() + ", " +
              wire::to_string(holder.state()) + ")";
  return claim;
}

void Core::give_way(const wire::Identity& to) {
  std::vector<Slot> holders;
  const auto look = [&](Slot slot) {
    const Member& holder = table_.at(slot);
    if (holder.identity->id != to.id && holder.state() != State::left && holder.identity->address == to.address) holders.push_back(slot);
    return false;
  };
  table_.each_named(to.name, look);
  for (const Slot slot : holders) leave(slot, "replaced by a new node of that name and address");
}

// The same for a member without a row here: nobody has spoken of it since this node's start, and nobody will.
void Core::give_way_absent(const wire::Identity& to) {
  std::vector<wire::IdentityPtr> holders;
  for (const auto& [id, peer] : absent_)
    if (id != to.id && peer->name == to.name && peer->address == to.address) holders.push_back(peer);
  for (const wire::IdentityPtr& peer : holders) {
    if (table_.size() + 1 >= options_.members) return;  // the newcomer needs a row, too
    leave_absent(peer, 1, "replaced by a new node of that name and address");
  }
}

// Not below the incarnation of its tombstone, or a lagging peer's message would bring it back.
bool Core::leave_absent(const wire::IdentityPtr& peer, std::uint64_t incarnation, std::string reason) {
  if (table_.size() >= options_.members) return false;
  const auto stone = tombstones_.find(peer->id);
  const std::uint64_t buried = stone == tombstones_.end() ? 1 : stone->second.incarnation;
  Member member{peer, nullptr, std::max({incarnation, buried, std::min(peer->life, kMostLives) << 20})};
  member.enter(State::left, now_);
  insert(std::move(member), std::move(reason));
  return true;
}

void Core::leave(Slot slot, std::string reason) {
  const Member& member = table_.at(slot);
  wire::Rumour rumour{wire::RumourKind::left, member.identity->id, member.incarnation, id_, nullptr, nullptr, reason};
  transition(slot, State::left, member.incarnation, nullptr, std::move(reason));
  tell(std::move(rumour));
}

void Core::report_conflict(const wire::Identity& who, std::uint64_t incarnation, const Claim& claim) {
  ++counters_.conflicts;
  if (!once(Topic::conflict, who.id, 60s)) return;
  change(ChangeKind::conflict, who, incarnation,
         "node " + who.id.text() + " at " + who.address.text() + " is not admitted: " + claim.why +
             "; give it another name or address, or if the old node will not come back: dtrainctl "
             "forget-node NAME");
}

}  // namespace dtrain::gossip
