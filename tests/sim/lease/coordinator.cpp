#include "tests/sim/lease/coordinator.h"

#include <algorithm>
#include <utility>

namespace dtrain::sim::lease {

Coordinator::Coordinator(const Setting& setting, Voter& voter, Rng rng, Voter::Send send)
    : setting_(setting),
      voter_(voter),
      rng_(rng),
      send_(std::move(send)),
      grants_({setting.lease, setting.agent_grace, kTasks, setting.broken_rule}) {}

void Coordinator::begin(Instant now) {
  active_ = true;
  term_ = voter_.term();
  round_ = voter_round_ = 0;
  waiting_.clear();
  in_flight_.clear();
  losing_.clear();
  away_.clear();
  told_ = placing_ = {};
  applied_ = voter_.ledger();
  hosts_.assign(setting_.hosts, {});
  for (Host& each : hosts_) each.heard = now;
  grants_.begin(now);
  follow(now);
  next_look_ = next_probe_ = now;
}

void Coordinator::follow_voter(Instant now) {
  if (active_ && (!voter_.leads() || voter_.term() != term_)) {
    active_ = false;
    grants_.end();
  }
  if (!active_ && voter_.ready() && voter_.settled()) begin(now);
  if (!active_) return;
  if (!in_flight_.empty() && voter_.settled()) apply(now);
  pump(now);
  if (round_ == 0 || voter_.done() < voter_round_) return;
  cluster::LeaseOutputs out;
  grants_.round_done(now, std::exchange(round_, 0), out);
  settle(now, out);
}

// ---------------------------------------------------------------- the log

void Coordinator::propose(Instant now, Command command) {
  if (!active_) return;
  waiting_.push_back(std::move(command));
  pump(now);
}

void Coordinator::pump(Instant now) {
  if (waiting_.empty() || !in_flight_.empty() || !voter_.settled()) return;
  in_flight_.assign(waiting_.begin(), waiting_.end());
  waiting_.clear();
  Ledger ledger = applied_;
  ++ledger.version.index;
  for (const Command& command : in_flight_) lease::apply(ledger, command);
  voter_.propose(now, std::move(ledger));
}

void Coordinator::apply(Instant now) {
  const Ledger before = std::exchange(applied_, voter_.ledger());
  for (const Command& command : std::exchange(in_flight_, {})) {
    const auto* lost = std::get_if<HostLost>(&command);
    if (lost == nullptr || losing_.erase(lost->host) == 0) continue;
    decide(lost->host, false);
  }
  for (std::uint32_t task = 0; task < kTasks; ++task)
    if (applied_.tasks[task].generation != before.tasks[task].generation)
      replaced_.push_back({task, before.tasks[task], applied_.tasks[task]});
  follow(now);
  next_look_ = now;
}

// As node::Leases::follow().
void Coordinator::follow(Instant now) {
  for (std::uint32_t task = 0; task < kTasks; ++task) {
    const TaskRecord& t = applied_.tasks[task];
    const bool there = !t.ended && setting_.keeps[task] != Keeps::none;
    if (told_[task] != 0 && (!there || told_[task] != t.generation)) grants_.removed(id_of(task, told_[task]));
    told_[task] = there ? t.generation : 0;
    if (!there) continue;
    grants_.placed(id_of(task, t.generation), member_id(t.host), t.placed);
    if (t.lease > 0ns) grants_.leased(now, id_of(task, t.generation), t.lease);
  }
}

// ---------------------------------------------------------------- messages

void Coordinator::settle(Instant now, const cluster::LeaseOutputs& out) {
  for (const cluster::LeaseAnswer& answer : out.answers) {
    Message message;
    message.kind = answer.granted ? Kind::granted : Kind::superseded;
    message.to = slot_of(static_cast<Member>(answer.request.host.low - 1));
    message.term = term_;
    message.nonce = answer.request.nonce;
    message.member = static_cast<Member>(answer.request.host.low - 1);
    message.task = answer.request.id.task.index;
    message.generation = answer.request.id.generation;
    send_(message);
  }
  if (out.begin_round == 0) return;
  round_ = out.begin_round;
  voter_round_ = voter_.begin_round(now);
}

void Coordinator::receive(Instant now, const Message& message) {
  if (!active_) return;
  Host& from = host(message.from);
  switch (message.kind) {
    case Kind::refused:
      from.heard = now;
      from.state = State::down;
      return;
    case Kind::alive:
      from.heard = now;
      from.state = State::alive;
      from.member = message.member;
      return;
    case Kind::request: {
      cluster::LeaseOutputs out;
      grants_.request(now, {id_of(message.task, message.generation), message.nonce, member_id(message.member)}, out);
      return settle(now, out);
    }
    case Kind::report: return propose(now, message.report);
    default: return;
  }
}

void Coordinator::tick(Instant now) {
  if (!active_ || now < next_look_) return;
  if (now >= next_probe_) {
    next_probe_ = now + kProbe;
    look_at_hosts(now);
  }
  next_look_ = std::min(now + kLook, watch_hosts(now));
  consider(now);
}

// ---------------------------------------------------------------- hosts

void Coordinator::look_at_hosts(Instant now) {
  for (Slot slot = kCandidates; slot < kCandidates + setting_.hosts; ++slot) {
    if (now - host(slot).heard > kDead) host(slot).state = State::dead;
    Message probe;
    probe.kind = Kind::probe;
    probe.to = slot;
    send_(probe);
  }
}

// As node::HostWatch: to be called again at the instant that it returns.
Instant Coordinator::watch_hosts(Instant now) {
  Instant next = kNever;
  std::set<Member> busy;
  for (const TaskRecord& t : applied_.tasks)
    if (!t.ended) busy.insert(t.host);
  std::erase_if(away_, [&](const auto& entry) { return !busy.contains(entry.first); });
  for (const Member member : busy) {
    const Host& seen = host(slot_of(member));
    const bool other = seen.member != 0 && seen.member != member;  // another member is there by now
    const State state = other ? State::dead : seen.state;
    if (state == State::alive) {
      const auto away = away_.find(member);
      if (away == away_.end()) continue;
      if (away->second.back == Instant{}) away->second.back = now;
      if (now - away->second.back >= kStaysBack) away_.erase(away);
      continue;
    }
    if (losing_.contains(member)) continue;
    const bool down = state == State::down;
    Away& away = away_.try_emplace(member, Away{now, {}}).first->second;
    away.back = {};
    HostLost lost{member, 0, down, false};
    Instant due = down ? away.since + kDownGrace : away.since;
    const auto known = applied_.hosts.find(member);
    if (known != applied_.hosts.end() && known->second.lost != 0) {
      due = over_at(member, {down, away.since});
      lost.leases_over = applied_.version.index;
    }
    if (due > now) {
      next = std::min(next, due);
      continue;
    }
    losing_.insert(member);
    if (lost.leases_over != 0) decide(member, true);
    propose(now, lost);
  }
  return next;
}

// As node::Leases::over_at().
Instant Coordinator::over_at(Member member, const cluster::HostAway& away) const {
  const std::uint64_t said = applied_.hosts.at(member).leases_over;
  std::optional<Instant> at;
  for (std::uint32_t task = 0; task < kTasks; ++task) {
    const TaskRecord& t = applied_.tasks[task];
    if (t.ended || t.host != member || t.lease == 0ns || t.leased <= said) continue;
    at = std::max(at.value_or(Instant{}), grants_.over_at(id_of(task, t.generation), away));
  }
  return at.value_or(kNever);
}

void Coordinator::decide(Member member, bool decided) {
  for (std::uint32_t task = 0; task < kTasks; ++task) {
    const TaskRecord& t = applied_.tasks[task];
    if (t.ended || t.host != member) continue;
    if (decided) grants_.decided(id_of(task, t.generation));
    else grants_.restored(id_of(task, t.generation));
  }
}

// ---------------------------------------------------------------- places

std::optional<Member> Coordinator::target(Instant now, Member except) {
  const Slot first = static_cast<Slot>(rng_.below(setting_.hosts));
  std::optional<Member> found;
  for (Slot i = 0; i < setting_.hosts; ++i) {
    const Host& each = host(kCandidates + (first + i) % setting_.hosts);
    if (each.state != State::alive || each.member == 0 || now - each.heard > kFresh) continue;
    const auto known = applied_.hosts.find(each.member);
    const bool lost = known != applied_.hosts.end() && known->second.lost != 0;
    if (lost || losing_.contains(each.member)) continue;
    if (each.member != except) return each.member;
    found = each.member;
  }
  return found;
}

void Coordinator::consider(Instant now) {
  for (std::uint32_t task = 0; task < kTasks; ++task) {
    const TaskRecord& t = applied_.tasks[task];
    if (!t.ended || placing_[task] > t.generation) continue;
    const auto member = target(now, t.host);
    if (!member) continue;
    placing_[task] = t.generation + 1;
    propose(now, Place{task, t.generation + 1, *member});
  }
}

}  // namespace dtrain::sim::lease
