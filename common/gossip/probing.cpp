// Probing: a ping, helpers if it is not answered, and a verdict if they get no answer either (SWIM, section 4.1). On
// a link that was not up yet, silence proves nothing before the connect deadline.
#include <algorithm>
#include <utility>

#include "common/gossip/core.h"

namespace dtrain::gossip {

void Core::probe_next() {
  if (table_.in_service() < 2) return;  // set again when a member comes
  timers_.set(Timers::of(Wait::probe), now_ + options_.probe_period);
  if (++probe_turn_ % options_.random_every == 0) {
    const auto eligible = [this](Slot slot) { return slot != self_slot_ && table_.used(slot) && table_.at(slot).in_service(); };
    const auto slot = order_.next(table_.slots(), eligible);
    if (slot && !probed_already(table_.at(*slot).identity->id)) probe(*slot, Probe::Why::watch);
    links_changed();
  }
  // A new neighbour gets its turn after the others, which keep theirs and know when to expect a ping (feel_pulse()).
  std::erase_if(turns_, [this](const MemberId& id) { return !rings_.is_neighbour(id); });
  for (const MemberId& id : rings_.neighbours())
    if (std::ranges::find(turns_, id) == turns_.end()) turns_.push_back(id);
  for (std::size_t tries = 0; tries < turns_.size(); ++tries) {
    std::rotate(turns_.begin(), turns_.begin() + 1, turns_.end());
    const MemberId& id = turns_.back();
    const Slot slot = table_.find(id);
    if (slot == kNone || probed_already(id)) continue;
    probe(slot, Probe::Why::watch, true);
    return;
  }
}

// Each member pings its neighbours in turn, one period apart; so one of them misses its ping within a period of a
// member's end, whatever the phases of its probers. That neighbour probes it at once; nobody is accused for a missed
// ping. The pings are sent anyway, so this costs nothing.
void Core::feel_pulse(const MemberId& from) {
  if (!rings_.is_neighbour(from)) return;
  Pulse& pulse = pulses_[from];
  const Duration since = now_ - pulse.last;
  const bool regular = since > pulse.interval / 2;  // otherwise the ping was out of turn: a question, or a helper's ping
  if (!regular) return;
  const bool known = pulse.last != Instant{};
  pulse = {now_, known ? std::min(since, longest_turn()) : Duration{}};
  timers_.set(Timers::of(Wait::expect, from), now_ + (known ? pulse.interval : longest_turn()) + kPulseGrace);
}

// When members come and go, others' turns change, and one ping may come later than those before. Until it does, the
// neighbour is probed each period: if it ended now, the member that it would have pinged next might not expect that
// for a whole turn.
void Core::pulse_missed(const MemberId& of) {
  const auto pulse = pulses_.find(of);
  if (pulse == pulses_.end()) return;
  const Slot slot = table_.find(of);
  if (slot == kNone || !rings_.is_neighbour(of) || table_.at(slot).state() != State::alive ||
      now_ - pulse->second.last > 2 * longest_turn()) {
    pulses_.erase(pulse);
    return;
  }
  if (!probed_already(of)) probe(slot, Probe::Why::watch);
  timers_.set(Timers::of(Wait::expect, of), now_ + options_.probe_period);
}

// The time between two pings of a neighbour with the greatest possible number of neighbours.
Duration Core::longest_turn() const {
  return options_.probe_period * std::min<std::size_t>(2 * options_.neighbour_rings, std::max<std::size_t>(table_.in_service(), 2) - 1);
}

bool Core::probed_already(const MemberId& id) const {
  return std::ranges::any_of(probes_,
                             [&](const auto& entry) { return entry.second.target == id && entry.second.why == Probe::Why::watch; });
}

bool Core::linked(const Member& member) const {
  return rings_.is_neighbour(member.identity->id) || up_.count(member.identity->address) != 0;
}

bool Core::probe(Slot slot, Probe::Why why, bool in_turn) {
  const Member& member = table_.at(slot);
  Probe probe;
  probe.why = why;
  probe.in_turn = in_turn;
  probe.target = member.identity->id;
  probe.incarnation = member.incarnation;
  probe.boot = boot_hash(*member.identity);
  probe.address = member.identity->address;
  return ping(std::move(probe)) != 0;
}

std::uint64_t Core::ping(Probe probe) {
  if (probes_.size() >= kProbes) return 0;  // a burst of requests: the next period tries again
  const std::uint64_t sequence = ++sequence_;
  probe.started = now_;
  probe.cold = up_.count(probe.address) == 0;
  ++counters_.probes;
  ask(sequence, probe);
  // A member that has just come back from a cut would hear of it too late on the old connection: TCP repeats lost data
  // only after a pause that doubles, and all later data waits for it. A new connection sends its first packet now.
  if (probe.why == Probe::Why::question) {
    const bool has_link = !probe.cold || rings_.is_neighbour(probe.target);
    if (has_link) out_->sends.push_back(Send(out_->sends.back()));
    out_->sends.back().anew = true;
  }
  time_probe(sequence, probe);
  probes_.emplace(sequence, std::move(probe));
  return sequence;
}

void Core::ask(std::uint64_t sequence, const Probe& probe) {
  wire::Ping body;
  body.sequence = sequence;
  body.target = probe.target;
  body.rumours = piggyback();
  body.out_of_turn = !probe.in_turn;
  // Rule 7: an accused member hears of it first from its prober, and refutes in its answer.
  const Slot slot = table_.find(probe.target);
  if (slot != kNone && table_.at(slot).state() != State::alive && with(Rule::probe_carries_suspicion))
    body.rumours.insert(body.rumours.begin(), accusation_of(table_.at(slot)));
  send(0, probe.address, probe.target, std::move(body));
}

void Core::time_probe(std::uint64_t sequence, const Probe& probe) {
  if (probe.why == Probe::Why::relay) {
    timers_.set(Timers::of(Wait::relay_nack, sequence), probe.started + options_.probe_deadline * 4 / 5);
    timers_.set(Timers::of(Wait::relay_end, sequence), probe.started + options_.connect_deadline);
    return;
  }
  if (probe.why == Probe::Why::roll_call) return timers_.set(Timers::of(Wait::probe_total, sequence), probe.started + options_.probe_total);
  const std::uint32_t factor = health_.factor();
  const Instant start = probe.started + own_lag();
  if (probe.why == Probe::Why::watch && !probe.helped)
    timers_.set(Timers::of(Wait::probe_direct, sequence), start + options_.probe_deadline * factor);
  const Duration total = probe.why == Probe::Why::watch ? options_.probe_total * factor : options_.connect_deadline;
  timers_.set(Timers::of(Wait::probe_total, sequence), start + total);
}

void Core::end_probe(std::uint64_t sequence) {
  probes_.erase(sequence);
  for (const Wait wait : {Wait::probe_direct, Wait::probe_total, Wait::relay_nack, Wait::relay_end})
    timers_.cancel(Timers::of(wait, sequence));
}

void Core::ask_helpers(std::uint64_t sequence) {
  const auto found = probes_.find(sequence);
  if (found == probes_.end() || found->second.helped) return;
  Probe& probe = found->second;
  probe.helped = true;
  timers_.cancel(Timers::of(Wait::probe_direct, sequence));
  const Slot slot = table_.find(probe.target);
  if (slot == kNone) return end_probe(sequence);
  const Member& target = table_.at(slot);
  if (known_silent(probe.target)) return;
  for (const Slot helper : some_others(probe.target, options_.helpers)) {
    ++probe.asked;
    send(table_.at(helper), wire::PingRequest{sequence, target.identity, target.incarnation, {}});
  }
  if (probe.cold) check_gone(target);  // is the connection refused? That is quicker than silence
}

// A member that is accused already has heard of it or will; a node that is cut off knows that its helpers are, too.
// Asking them again would find out nothing, and would keep connections to everybody being opened, which would all
// come up together.
bool Core::known_silent(const MemberId& id) const {
  const auto suspicion = suspicions_.find(id);
  return frozen_ || (suspicion != suspicions_.end() && suspicion->second.accused_by(id_));
}

// Neighbours first: the links to them are warm, and they are as good a sample as any.
std::vector<MemberTable::Slot> Core::some_others(const MemberId& target, std::uint32_t count) {
  std::vector<MemberId> not_these{target};
  std::vector<Slot> others;
  std::vector<MemberId> neighbours = rings_.neighbours();
  while (!neighbours.empty() && others.size() < count) {
    const auto pick = neighbours.begin() + static_cast<std::ptrdiff_t>(rng_.below(neighbours.size()));
    const Slot slot = table_.find(*pick);
    if (*pick != target && slot != kNone && table_.at(slot).state() == State::alive) {
      others.push_back(slot);
      not_these.push_back(*pick);
    }
    neighbours.erase(pick);
  }
  while (others.size() < count) {
    const auto slot = random_member(not_these);
    if (!slot) break;
    others.push_back(*slot);
    not_these.push_back(table_.at(*slot).identity->id);
  }
  return others;
}

std::optional<MemberTable::Slot> Core::random_member(const std::vector<MemberId>& not_these) {
  const auto fits = [&](Slot slot) {
    return slot != self_slot_ && table_.used(slot) && table_.at(slot).state() == State::alive &&
           std::ranges::find(not_these, table_.at(slot).identity->id) == not_these.end();
  };
  constexpr int kTries = 32;  // then one after another from a random place
  for (int i = 0; i < kTries; ++i)
    if (const auto slot = static_cast<Slot>(rng_.below(table_.slots())); fits(slot)) return slot;
  const auto start = static_cast<Slot>(rng_.below(table_.slots()));
  constexpr Slot kSteps = 256;  // a table with so few living members is not searched completely
  for (Slot i = 0; i < std::min(kSteps, table_.slots()); ++i)
    if (const Slot slot = (start + i) % table_.slots(); fits(slot)) return slot;
  return std::nullopt;
}

void Core::probe_fails(std::uint64_t sequence) {
  const auto found = probes_.find(sequence);
  if (found == probes_.end()) return;
  if (found->second.why == Probe::Why::roll_call) judge_probes(true);
  if (found->second.why != Probe::Why::watch) return end_probe(sequence);
  if (found->second.cold && now_ < found->second.started + options_.connect_deadline)
    return timers_.set(Timers::of(Wait::probe_total, sequence), found->second.started + options_.connect_deadline);
  const Probe probe = found->second;
  end_probe(sequence);
  ++counters_.probe_failures;
  judge_probes(true);
  // Helpers that did not even report a missing answer: this node may be the one that is not heard.
  if (probe.asked > probe.nacks) health_.worse(probe.asked - probe.nacks);
  else if (probe.asked == 0 && !known_silent(probe.target)) health_.worse();
  accuse(probe.target, probe.incarnation);
}

void Core::judge_probes(bool failed) {
  constexpr std::uint32_t kMask = (1u << kProbesJudged) - 1;
  recent_failures_ = (recent_failures_ << 1 | (failed ? 1u : 0u)) & kMask;
  recent_probes_ = std::min(recent_probes_ + 1, kProbesJudged);
}

void Core::nack(std::uint64_t sequence) {
  const auto found = probes_.find(sequence);
  if (found == probes_.end()) return;
  const Probe& probe = found->second;
  send(probe.reply, probe.asker, probe.asker_id, wire::Nack{probe.asker_sequence});
}

// ---------------------------------------------------------------- messages

void Core::receive(const Received& m, const wire::Ping& body) {
  merge_all(body.rumours, m.header.sender);
  if (!body.out_of_turn) feel_pulse(m.header.sender);
  if (body.target != id_) {  // rule 10: the address belonged to another member
    ++counters_.pings_refused;
    return;
  }
  wire::Pong pong;
  pong.sequence = body.sequence;
  pong.incarnation = incarnation_;
  pong.boot_hash = boot_hash(*identity_);
  pong.sent = body.sent;
  // Only what the asker does not know, because a pong a second is the steady cost. The header shows that the pong is this node's.
  const Slot asker = table_.find(m.header.sender);
  if (asker == kNone || table_.at(asker).identity->address.ip != m.observed_ip) pong.observed_ip = m.observed_ip;
  pong.rumours = piggyback();
  // An accuser gets the refutation here, whatever waits in the queue.
  for (const wire::Rumour& rumour : body.rumours)
    if (rumour.subject == id_ && rumour.kind != wire::RumourKind::fact) {
      pong.rumours.insert(pong.rumours.begin(), alive_rumour(self_row()));
      break;
    }
  answer(m, std::move(pong));
}

void Core::receive(const Received& m, const wire::Pong& body) {
  merge_all(body.rumours, m.header.sender);
  const MemberId& target = body.target.none() ? m.header.sender : body.target;
  auto found = probes_.find(body.sequence);
  if (!with(Rule::pong_must_match) && found == probes_.end())
    found = std::ranges::find_if(probes_, [&](const auto& entry) { return entry.second.target == target; });
  const auto matches = [&](const Probe& probe) {
    return probe.target == target && body.incarnation >= probe.incarnation && body.boot_hash == probe.boot &&
           (m.header.sender == probe.target || probe.helped);
  };
  if (found == probes_.end() || (with(Rule::pong_must_match) && !matches(found->second))) {
    ++counters_.stale_pongs;
    return;
  }
  const Probe probe = found->second;
  end_probe(found->first);
  // A question may have been answered on the connection that was made for it.
  if (m.header.sender == probe.target && probe.why != Probe::Why::question) up_.insert(probe.address);
  switch (probe.why) {
    case Probe::Why::watch:
      last_pong_ = now_;
      health_.better();
      judge_probes(false);
      break;
    case Probe::Why::roll_call:
      last_pong_ = now_;
      judge_probes(false);
      break;
    case Probe::Why::question: last_pong_ = now_; break;
    case Probe::Why::retry: sync_soon(probe.target); break;
    case Probe::Why::relay: {
      wire::Pong relayed = body;
      relayed.sequence = probe.asker_sequence;
      relayed.target = probe.target;
      relayed.observed_ip.clear();
      send(probe.reply, probe.asker, probe.asker_id, std::move(relayed));
      return;
    }
  }
  if (m.header.sender == probe.target) seen_as(body.observed_ip, probe.target);
}

void Core::receive(const Received& m, const wire::PingRequest& body) {
  merge_all(body.rumours, m.header.sender);
  const Slot slot = body.target ? table_.find(body.target->id) : kNone;
  const Slot asker = table_.find(m.header.sender);
  if (slot == kNone || asker == kNone || slot == self_slot_) return answer(m, wire::Nack{body.sequence});
  const Member& member = table_.at(slot);
  if (member.incarnation > body.incarnation) answer(m, wire::Gossip{{accusation_of(member)}});
  if (overloaded() && !linked(member)) return answer(m, wire::Nack{body.sequence});
  Probe probe;
  probe.why = Probe::Why::relay;
  probe.target = member.identity->id;
  probe.incarnation = member.incarnation;
  probe.boot = boot_hash(*member.identity);
  probe.address = member.identity->address;
  probe.reply = m.reply;
  probe.asker = table_.at(asker).identity->address;
  probe.asker_id = m.header.sender;
  probe.asker_sequence = body.sequence;
  if (ping(std::move(probe)) == 0) answer(m, wire::Nack{body.sequence});
}

void Core::receive(const Received&, const wire::Nack& body) {
  const auto found = probes_.find(body.sequence);
  if (found == probes_.end()) return;
  Probe& probe = found->second;
  probe.nacks = std::min(probe.nacks + 1, probe.asked);
}

void Core::receive(const Received& m, const wire::ProbeNow& body) {
  const Slot slot = body.subject ? table_.find(body.subject->id) : kNone;
  if (slot == kNone || slot == self_slot_) return;
  const Member& member = table_.at(slot);
  if (member.incarnation > body.incarnation) return answer(m, wire::Gossip{{accusation_of(member)}});
  if (!member.in_service() || (overloaded() && !linked(member))) return;
  if (!linked(member)) check_gone(member);
  if (!probed_already(member.identity->id)) probe(slot, Probe::Why::watch);
}

// The address at which peers see this node is where others would reach it, or a translation on the way that operators
// must know of.
void Core::seen_as(const std::string& observed_ip, const MemberId& by) {
  const auto loopback = [](const std::string& ip) { return ip.starts_with("127.") || ip == "::1"; };
  const std::string& advertised = identity_->address.ip;
  // A peer that sees this node at its advertised address adds nothing.
  const bool right = observed_ip.empty() || observed_ip == advertised || (loopback(observed_ip) && loopback(advertised));
  for (auto& [ip, seen] : seen_as_)
    if (right || ip != observed_ip) seen.by.erase(by);
  if (right) return;
  if (seen_as_.size() >= kSeenAddresses && !seen_as_.contains(observed_ip))
    std::erase_if(seen_as_, [](const auto& entry) { return entry.second.by.empty(); });
  if (seen_as_.size() >= kSeenAddresses && !seen_as_.contains(observed_ip)) return;
  SeenAt& seen = seen_as_[observed_ip];
  if (seen.by.size() >= kSeers) std::erase_if(seen.by, [this](const MemberId& id) { return !in_service(id); });
  if (seen.by.size() < kSeers) seen.by.insert(by);
  if (seen.by.size() < kSeers || std::exchange(seen.said, true)) return;
  change(ChangeKind::address_mismatch, *identity_, incarnation_,
         "peers see this node at " + observed_ip + ", it advertises " + advertised +
             "; set network.advertise to the address that others reach it by");
}

std::string Core::seen_elsewhere() const {
  for (const auto& [ip, seen] : seen_as_) {
    const auto there = std::ranges::count_if(seen.by, [this](const MemberId& id) { return in_service(id); });
    if (static_cast<std::size_t>(there) >= kSeers) return ip;
  }
  return "";
}

bool Core::in_service(const MemberId& id) const {
  const Slot slot = table_.find(id);
  return slot != kNone && table_.at(slot).in_service();
}

}  // namespace dtrain::gossip
