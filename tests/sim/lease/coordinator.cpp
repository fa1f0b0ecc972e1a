#include "tests/sim/lease/coordinator.h"

#include <utility>

namespace dtrain::sim::lease {

using Kind = Message::Kind;
using Why = cluster::Replaceable::Why;

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
  proposed_.reset();
  moving_ = died_ = {};
  applied_ = voter_.ledger();
  hosts_.assign(setting_.hosts, {});
  for (Host& each : hosts_) {
    each.heard = each.seen.since = now;
    each.revision = 1;
  }
  grants_.begin(voter_.elected_at());
  for (std::uint32_t task = 0; task < kTasks; ++task) place(task);
  next_look_ = next_probe_ = now;
}

void Coordinator::place(std::uint32_t task) {
  const TaskRecord& record = applied_.tasks[task];
  if (record.generation == 0) return;
  grants_.placed(id_of(task, record.generation),
                 {member_of(record.host), boot_id(record.boot), !setting_.exempt[task]},
                 {term_, host(record.host).revision});
}

void Coordinator::follow_voter(Instant now) {
  if (active_ && (!voter_.leads() || voter_.term() != term_)) {
    active_ = false;
    grants_.end();
  }
  if (!active_ && voter_.ready() && voter_.settled()) begin(now);
  if (!active_) return;
  if (proposed_ && voter_.settled()) apply(now);
  if (round_ == 0 || voter_.done() < voter_round_) return;
  cluster::LeaseOutputs out;
  grants_.round_done(now, std::exchange(round_, 0), out);
  settle(now, out);
}

void Coordinator::apply(Instant) {
  const Replaced done = *std::exchange(proposed_, std::nullopt);
  applied_ = voter_.ledger();
  if (done.before.generation != 0) {
    grants_.removed(id_of(done.task, done.before.generation));
    ++host(done.before.host).revision;
  }
  if (done.after.host != done.before.host || done.before.generation == 0) ++host(done.after.host).revision;
  moving_[done.task] = died_[done.task] = false;
  place(done.task);
  replaced_.push_back(done);
  if (done.before.generation != 0) order(done.before.host);
  order(done.after.host);
}

void Coordinator::settle(Instant now, const cluster::LeaseOutputs& out) {
  for (const cluster::LeaseAnswer& answer : out.answers) {
    Message message;
    message.kind = answer.granted ? Kind::granted : Kind::superseded;
    message.to = static_cast<Slot>(answer.request.host.low - 1);
    message.fence.epoch = term_;
    message.nonce = answer.request.nonce;
    message.count = 1;
    message.entries[0].task = answer.request.id.task.index;
    message.entries[0].generation = answer.request.id.generation;
    message.entries[0].attempt = answer.request.attempt;
    send_(message);
  }
  if (out.begin_round == 0) return;
  round_ = out.begin_round;
  voter_round_ = voter_.begin_round(now);
}

void Coordinator::receive(Instant now, const Message& message) {
  if (!active_) return;
  Host& from = host(message.from);
  if (message.kind == Kind::refused) {
    from.heard = now;
    if (from.seen.state != State::down) from.seen = {State::down, now};
    return;
  }
  if (message.kind == Kind::request) {
    const Entry& entry = message.entries[0];
    cluster::LeaseOutputs out;
    grants_.request(now,
                    {id_of(entry.task, entry.generation), entry.attempt, message.nonce, member_of(message.from),
                     boot_id(message.boot)},
                    out);
    return settle(now, out);
  }
  if (message.kind != Kind::report) return;
  from.heard = now;
  from.boot = message.boot;
  from.fence = message.yes ? message.fence : Fence{};  // a new life has heard no order yet
  if (from.seen.state != State::alive) from.seen = {State::alive, now};
  cluster::LeaseReport report{member_of(message.from), boot_id(message.boot), message.fence, {}};
  for (std::uint32_t i = 0; i < message.count; ++i) {
    const Entry& entry = message.entries[i];
    report.entries.push_back({id_of(entry.task, entry.generation), entry.attempt, entry.flag});
    if (entry.generation == applied_.tasks[entry.task].generation) died_[entry.task] = entry.flag && entry.attempt > 0;
  }
  grants_.report(report);
  for (std::uint32_t task = 0; task < kTasks; ++task) consider(now, task);
}

void Coordinator::tick(Instant now) {
  if (!active_ || now < next_look_) return;
  next_look_ = now + kLook;
  if (now >= next_probe_) {
    next_probe_ = now + kProbe;
    look_at_hosts(now);
  }
  for (std::uint32_t task = 0; task < kTasks; ++task) consider(now, task);
}

void Coordinator::look_at_hosts(Instant now) {
  for (Slot slot = kCandidates; slot < kCandidates + setting_.hosts; ++slot) {
    Host& each = host(slot);
    if (each.seen.state != State::dead && now - each.heard > kDead) each.seen = {State::dead, now};
    Message probe;
    probe.kind = Kind::probe;
    probe.to = slot;
    send_(probe);
    if (each.fence != Fence{term_, each.revision}) order(slot);
  }
}

void Coordinator::order(Slot slot) {
  Message order;
  order.kind = Kind::order;
  order.to = slot;
  order.fence = {term_, host(slot).revision};
  for (std::uint32_t task = 0; task < kTasks; ++task) {
    const TaskRecord& record = applied_.tasks[task];
    if (record.generation != 0 && record.host == slot)
      order.entries[order.count++] = {task, record.generation, record.boot, 0, moving_[task]};
  }
  send_(order);
}

void Coordinator::move(Instant, std::uint32_t task) {
  const TaskRecord& record = applied_.tasks[task];
  if (!active_ || proposed_ || record.generation == 0 || moving_[task]) return;
  moving_[task] = true;
  ++host(record.host).revision;
  grants_.withdraw(id_of(task, record.generation), {term_, host(record.host).revision});
  order(record.host);
}

std::optional<Slot> Coordinator::target(Instant now, Slot except) {
  const Slot first = static_cast<Slot>(rng_.below(setting_.hosts));
  std::optional<Slot> found;
  for (Slot i = 0; i < setting_.hosts; ++i) {
    const Slot slot = kCandidates + (first + i) % setting_.hosts;
    const Host& each = host(slot);
    if (each.seen.state != State::alive || each.boot == 0 || now - each.heard > kFresh) continue;
    if (slot != except) return slot;
    found = slot;
  }
  return found;
}

void Coordinator::consider(Instant now, std::uint32_t task) {
  if (proposed_ || !voter_.settled()) return;
  const TaskRecord& record = applied_.tasks[task];
  Replaced next{task, record, {}, Why::in_service};
  if (record.generation != 0) {
    const cluster::HostSeen& seen = host(record.host).seen;
    const auto may = grants_.replaceable(id_of(task, record.generation), seen);
    const bool exited = setting_.replace_on_exit && died_[task] && may.why == Why::exited;
    const bool wanted = exited || moving_[task] || may.why == Why::rebooted || seen.state != State::alive;
    if (!wanted || may.at > now) return;
    next.why = may.why;
  }
  const auto slot = target(now, record.generation == 0 ? kCandidates + setting_.hosts : record.host);
  if (!slot) return;
  next.after = {record.generation + 1, *slot, host(*slot).boot};
  if (record.generation != 0) grants_.decided(id_of(task, record.generation));
  Ledger ledger = applied_;
  ledger.tasks[task] = next.after;
  proposed_ = next;
  voter_.propose(now, ledger);
}

}  // namespace dtrain::sim::lease
