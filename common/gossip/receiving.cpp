// What arrives: messages, evidence of links, and requests of the node itself.
#include <algorithm>

#include "common/gossip/core.h"

namespace dtrain::gossip {

using wire::RumourKind;

void Core::act(const Received& m) {
  if (m.header.sender == id_) return act(Dropped{wire::Drop::self, m.observed_ip});
  const auto* const join = std::get_if<wire::Join>(&m.body);
  const auto* const reply = std::get_if<wire::JoinReply>(&m.body);
  if (phase_ == Phase::waiting) {
    if (reply) receive(m, *reply);
    return;
  }
  if (!active()) return;
  // Rule 15 once more: the envelope's check comes first.
  const bool ours = m.header.cluster == cluster_ || (join && m.header.cluster.none());
  if (!ours && with(Rule::other_cluster_dropped)) {
    ++counters_.drops[static_cast<std::size_t>(wire::Drop::other_cluster)];
    return;
  }
  std::visit([&](const auto& body) { receive(m, body); }, m.body);
  if (!join) answer_stale(m);
}

// An accuser gets the refutation at once: this node's rumours may not reach it when most members are cut off.
void Core::receive(const Received& m, const wire::Gossip& body) {
  const std::uint64_t accused = incarnation_;
  merge_all(body.rumours, m.header.sender);
  if (incarnation_ != accused) answer(m, wire::Gossip{{alive_rumour(self_row())}});
}

void Core::merge_all(const std::vector<wire::Rumour>& rumours, const MemberId& teller) {
  for (const wire::Rumour& rumour : rumours) merge(rumour, teller);
}

void Core::answer_stale(const Received& m) {
  const MemberId& sender = m.header.sender;
  const Slot slot = table_.find(sender);
  wire::Rumour rumour;
  if (slot == kNone) {
    const auto found = tombstones_.find(sender);
    if (found == tombstones_.end() || !buried(sender, m.header.incarnation)) return;
    rumour = {RumourKind::dead, sender, found->second.incarnation, id_, nullptr, nullptr, {}};
  } else {
    const Member& member = table_.at(slot);
    const bool current =
        member.state() == State::alive ? m.header.incarnation >= member.incarnation : m.header.incarnation > member.incarnation;
    // A raised incarnation that is unknown here: its rumour may be under way, or was missed.
    if (m.header.incarnation > member.incarnation && once(Topic::missed, sender, 5s)) sync_soon(sender, m.header.incarnation);
    if (current) return;
    rumour = accusation_of(member);
  }
  if (once(Topic::told, sender, 1s)) answer(m, wire::Gossip{{std::move(rumour)}});
}

void Core::act(const Dropped& dropped) {
  const auto why = static_cast<std::size_t>(dropped.why);
  if (why < wire::kDrops) ++counters_.drops[why];
  // This node's own id from elsewhere. From this address it is its own join, which came back by one of its names.
  const std::string& ip = dropped.from_ip;
  if (dropped.why != wire::Drop::self || ip.empty() || ip == identity_->address.ip || ip.starts_with("127.") || ip == "::1") return;
  if (!once(Topic::copied, id_, 60s)) return;
  ++counters_.conflicts;
  change(ChangeKind::conflict, *identity_, incarnation_,
         "this node's id is also used at " + ip + ", here at " + identity_->address.text() +
             ": a data directory was copied; stop one of them and start it with an empty data directory");
}

// ---------------------------------------------------------------- links

MemberTable::Slot Core::in_service_at(const wire::Endpoint& address) const {
  Slot found = kNone;
  table_.each_at(address, [&](Slot slot) {
    if (!table_.at(slot).in_service()) return false;
    found = slot;
    return true;
  });
  return found;
}

void Core::act(const LinkLost& link) {
  up_.erase(link.to);
  if (!active()) return;
  const Slot slot = in_service_at(link.to);
  if (slot != kNone && slot != self_slot_) check_gone(table_.at(slot));
}

void Core::act(const LinkUp& link) {
  up_.insert(link.to);
  // A ping that was sent before the link was up is only now on its way: its time begins anew. A ping on the previous
  // link is lost: it is sent again.
  for (auto& [sequence, probe] : probes_) {
    if (probe.address != link.to) continue;
    if (!probe.cold && active()) ask(sequence, probe);
    if (!probe.cold || probe.why == Probe::Why::relay) continue;
    probe.cold = false;
    probe.started = now_;
    time_probe(sequence, probe);
  }
}

// Rule 9: a failed direct probe, not a skipped one. Helpers may still reach the member.
void Core::act(const SendFailed& failed) {
  if (!active()) return;
  std::vector<std::uint64_t> hit;
  for (const auto& [sequence, probe] : probes_)
    if (probe.address == failed.to && probe.why == Probe::Why::watch && !probe.helped) hit.push_back(sequence);
  for (const std::uint64_t sequence : hit) {
    if (!with(Rule::send_failure_is_failed_probe)) {
      end_probe(sequence);
      continue;
    }
    ask_helpers(sequence);
  }
}

// ---------------------------------------------------------------- oneself

void Core::act(const FactChanged& changed) {
  const auto key = static_cast<std::size_t>(changed.key);
  if (key >= wire::kFactKeys) return;
  Member me = self_row();
  Facts facts = me.facts ? *me.facts : Facts{};
  if (facts[key] && facts[key]->value == changed.value) return;
  const std::uint64_t version =
      std::min(std::max(me.fact_version(key), std::min(identity_->life, kMostLives) << 32) + 1, wire::kMostFactVersion);
  facts[key] = std::make_shared<const wire::Fact>(wire::Fact{changed.key, version, changed.value});
  wire::Rumour rumour{RumourKind::fact, id_, incarnation_, {}, nullptr, facts[key], {}};
  me.facts = std::make_shared<const Facts>(std::move(facts));
  table_.set(self_slot_, std::move(me));
  change(ChangeKind::fact, *identity_, incarnation_);
  tell(std::move(rumour));
}

void Core::act(const IdentityChanged& changed) {
  if (changed.identity.id != id_ || changed.identity == *identity_) return;
  identity_ = std::make_shared<const wire::Identity>(changed.identity);
  rise_above(0);
  announce_myself();
}

void Core::act(const RemoveAsked& remove) {
  if (!active()) return;
  const auto absent = absent_.find(remove.member);
  if (absent != absent_.end() && leave_absent(wire::IdentityPtr(absent->second), 1, "operator"))
    return tell(accusation_of(table_.at(table_.find(remove.member))));
  const Slot slot = table_.find(remove.member);
  if (slot == kNone) return;
  const State state = table_.at(slot).state();
  if (state == State::alive || state == State::left || (state == State::suspect && !frozen_)) return;
  leave(slot, "operator");
}

void Core::act(const StopAsked&) {
  if (active()) announce_end({RumourKind::down, id_, incarnation_, id_, nullptr, nullptr, "restarting"});
  if (phase_ != Phase::left) phase_ = Phase::stopping;
  timers_.clear();
}

void Core::act(const LeaveAsked&) {
  if (phase_ == Phase::left) return;
  if (active()) announce_end({RumourKind::left, id_, incarnation_, id_, nullptr, nullptr, "asked to leave"});
  Member me = self_row();
  me.enter(State::left, now_);
  table_.set(self_slot_, std::move(me));
  change(ChangeKind::left, *identity_, incarnation_, "asked to leave");
  phase_ = Phase::left;
  timers_.clear();
  out_->save = SaveRecord{record()};
}

// To all neighbours at once: this node is about to end.
void Core::announce_end(wire::Rumour rumour) {
  wire::Gossip gossip{{std::move(rumour)}};
  queue_.take(options_.gossip_bytes, wire::kRumoursPerMessage - 1, gossip.rumours);
  for (const MemberId& id : rings_.neighbours())
    if (const Slot slot = table_.find(id); slot != kNone) send(table_.at(slot), gossip);
}

}  // namespace dtrain::gossip
