// How a member of world council is told things, and how what it answers is done.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "tests/sim/council/council_world.h"
#include "tests/sim/council/trace_text.h"

namespace dtrain::sim::council {
namespace {

constexpr std::uint32_t kTicksInPlace = 1000;  // deadlines in a row that have passed already: a busy loop
constexpr std::uint32_t kEncodeOneIn = 16;
constexpr std::size_t kMostHeld = 4096;  // what a stopped process is sent beyond that is lost
constexpr Duration kSnapshotTakes = 20ms;

}  // namespace

void CouncilWorld::mix(std::uint64_t value) {
  hash_ = (hash_ ^ value) * 0xff51afd7ed558ccdull;
  hash_ ^= hash_ >> 29;
}

void CouncilWorld::line(Slot slot, std::string_view mark, const std::string& text) const {
  std::printf("%s %s %.*s %s\n", seconds_text(now_).c_str(), machines_[slot].truth.name.c_str(), static_cast<int>(mark.size()), mark.data(),
              text.c_str());
}

void CouncilWorld::note(std::string text) {
  for (const char c : text) mix(static_cast<unsigned char>(c));
  if (options_.trace) std::printf("%s == %s\n", seconds_text(now_).c_str(), text.c_str());
}

void CouncilWorld::handle(const Event& event) {
  switch (event.what) {
    case What::tick: return on_tick(event);
    case What::message: return on_message(event);
    case What::persisted: return on_persisted(event);
    case What::snapshot: return on_snapshot(event);
    case What::resume: return on_resume(event);
    case What::ask: return on_ask(event);
    case What::told: return clients_.on_told(event);
    case What::client: return clients_.on_client(event);
    case What::action: {
      const auto action = actions_.take(event.a);
      return action();
    }
  }
}

void CouncilWorld::drop(const Event& event) {
  if (event.what == What::message) flights_.drop(event.a);
  if (event.what == What::ask) clients_.drop(event.a);
}

void CouncilWorld::step(Slot slot, const raft::Input& input) {
  SimMachine& machine = machines_[slot];
  ++figures_.steps;
  mix(static_cast<std::uint64_t>(now_.time_since_epoch().count()) << 4 ^ input.index());
  mix(slot);
  if (options_.trace && !std::holds_alternative<raft::Tick>(input)) line(slot, "<-", text_of(input));
  for (const auto& checker : checkers_) checker->stepping(slot, input);
  out_.clear();
  machine.core->step(machine.clock.local(now_), input, out_);
  perform(slot);
  for (const auto& checker : checkers_) checker->stepped(slot);
  schedule(slot);
}

void CouncilWorld::perform(Slot slot) {
  SimMachine& machine = machines_[slot];
  if (out_.leadership) {
    mix(out_.leadership->term << 3 ^ static_cast<std::uint64_t>(out_.leadership->role));
    if (out_.leadership->ready) ++figures_.leaders;
    if (options_.trace)
      line(slot, "**",
           std::string(to_string(out_.leadership->role)) + " term " + std::to_string(out_.leadership->term) + " leader " +
               short_text(out_.leadership->leader) + (out_.leadership->ready ? " ready" : ""));
  }
  apply(slot);
  for (const raft::Answer& given : out_.answers) answer(slot, given);
  serve_reads(slot);
  machine.outcomes.clear();
  if (out_.persist) persist(slot, std::move(*out_.persist));
  for (raft::Send& one : out_.sends) send(slot, std::move(one));
  if (out_.snapshot_wanted && !machine.snapshot_under_way) {
    machine.snapshot_under_way = true;
    queue_.push(now_ + upto(kSnapshotTakes), What::snapshot, slot, machine.truth.process);
  }
}

void CouncilWorld::apply(Slot slot) {
  SimMachine& machine = machines_[slot];
  if (out_.forgotten) machine.machine = RegisterMachine(window_, rules_);
  if (out_.installed) {
    if (options_.trace) line(slot, "**", "installed snapshot " + std::to_string(out_.installed->index));
    if (!machine.machine.decode(out_.installed->payload)) {
      violation("snapshot_readable", machine.truth.name + " was given a snapshot that is none");
      return;
    }
    mix(out_.installed->index);
    for (const auto& checker : checkers_) checker->installed(slot, *out_.installed);
  }
  for (const raft::LogEntry& entry : out_.committed) {
    if (entry.index != machine.machine.applied() + 1) {
      violation("commits_without_gap", machine.truth.name + " is given entry " + std::to_string(entry.index) + " after entry " +
                                           std::to_string(machine.machine.applied()));
      return;
    }
    const RegisterMachine::Outcome outcome = machine.machine.apply(entry);
    ++figures_.committed;
    mix(machine.machine.trail());
    machine.outcomes.emplace_back(entry.index, outcome);
    for (const auto& checker : checkers_) checker->applied(slot, entry, outcome);
  }
}

void CouncilWorld::answer(Slot slot, const raft::Answer& given) {
  SimMachine& machine = machines_[slot];
  const auto asked = machine.asks.find(given.number);
  if (asked == machine.asks.end()) {
    violation("answers_once",
              machine.truth.name + " answers number " + std::to_string(given.number) + ", which was not asked or was answered before");
    return;
  }
  const std::uint32_t at = asked->second;
  machine.asks.erase(asked);
  if (options_.trace)
    line(slot, "**", "answers " + std::to_string(given.number) + " " + to_string(given.refusal) + " index " + std::to_string(given.index));
  if (at == SimMachine::kChange) return;
  Attempt& attempt = clients_.attempt(at);
  attempt.history = machine.core->history();
  if (given.refusal != raft::Refusal::none) {
    attempt.end = Attempt::End::refused;
    attempt.leader = slot_of(given.leader);
    return clients_.answer(now_, at);
  }
  if (given.read) {
    machine.reads.emplace_back(given.index, at);
    return;
  }
  const auto outcome =
      std::find_if(machine.outcomes.begin(), machine.outcomes.end(), [&](const auto& one) { return one.first == given.index; });
  if (outcome == machine.outcomes.end() || outcome->second.request != attempt.command.request) {
    violation("answered_with_its_entry", machine.truth.name + " says that request " + std::to_string(attempt.command.request) +
                                             " is entry " + std::to_string(given.index) + ", which it is not");
    return clients_.drop(at);
  }
  attempt.index = given.index;
  if (outcome->second.done == RegisterMachine::Done::refused) {
    attempt.end = Attempt::End::too_old;
    return clients_.answer(now_, at);
  }
  done(slot, at, outcome->second.reading);
}

void CouncilWorld::done(Slot slot, std::uint32_t at, const Reading& reading) {
  const SimMachine& machine = machines_[slot];
  Attempt& attempt = clients_.attempt(at);
  attempt.end = Attempt::End::answered;
  attempt.reading = reading;
  attempt.history = machine.core->history();
  attempt.index = machine.machine.applied();
  clients_.answer(now_, at);
}

void CouncilWorld::serve_reads(Slot slot) {
  SimMachine& machine = machines_[slot];
  std::erase_if(machine.reads, [&](const auto& read) {
    if (read.first > machine.machine.applied()) return false;
    done(slot, read.second, machine.machine.reading());
    return true;
  });
}

void CouncilWorld::give(const raft::History& by, const Operation& operation, const Reading& reading) {
  mix(operation.request << 20 ^ reading.version);
  for (const auto& checker : checkers_) checker->answered(by, operation, reading);
}

void CouncilWorld::begun(const Operation& operation) {
  for (const auto& checker : checkers_) checker->asked(operation);
}

void CouncilWorld::on_ask(const Event& event) {
  SimMachine& machine = machines_[event.slot];
  if (!machine.truth.runs) return clients_.drop(event.a);
  if (machine.truth.paused) {
    if (machine.held.size() >= kMostHeld) return clients_.drop(event.a);
    machine.held.push_back(event);
    return;
  }
  const Attempt& attempt = clients_.attempt(event.a);
  const std::uint64_t number = ++machine.numbers;
  machine.asks[number] = event.a;
  if (attempt.operation.write) step(event.slot, raft::Propose{number, encode_command(attempt.command)});
  else step(event.slot, raft::ReadAsked{number});
}

void CouncilWorld::persist(Slot slot, raft::Persist&& persist) {
  SimMachine& machine = machines_[slot];
  if (machine.under_way) {
    violation("one_persist_at_a_time", machine.truth.name + " asks for a second Persist while one is under way");
    return;
  }
  ++figures_.persists;
  mix(persist.token << 8 ^ persist.entries.size());
  if (options_.trace) line(slot, "->", text_of(persist));
  for (const auto& checker : checkers_) checker->persisting(slot, persist);
  machine.under_way = std::move(persist);
  machine.persist_fails = machine.fail_next_persist;
  machine.fail_next_persist = false;
  const Duration takes = 20us + upto(disk_takes_) + (machine.disk_takes > 0ns ? upto(machine.disk_takes) : 0ns);
  queue_.push(now_ + takes, What::persisted, slot, machine.truth.process);
  if (machine.in_next_persist) after(upto(takes), std::exchange(machine.in_next_persist, nullptr));
}

// The kernel writes also for a stopped process, which hears of it later.
void CouncilWorld::on_persisted(const Event& event) {
  SimMachine& machine = machines_[event.slot];
  if (machine.truth.process != event.a || !machine.under_way) return;
  const bool fails = machine.persist_fails;
  if (!machine.stored_already) {
    if (!fails || rng_.chance(1, 2)) write(event.slot);
    machine.stored_already = true;
  }
  if (machine.truth.paused) {
    machine.held.push_back(event);
    return;
  }
  raft::Persist persist = std::move(*machine.under_way);
  machine.under_way.reset();
  machine.stored_already = machine.persist_fails = false;
  if (fails) {
    ++figures_.disk_errors;
    machine.truth.disk_failed = true;
    note("the disk of " + machine.truth.name + " failed");
    return step(event.slot, raft::PersistFailed{persist.token});
  }
  for (raft::Send& one : persist.sends) send(event.slot, std::move(one));
  step(event.slot, raft::Persisted{persist.token});
}

void CouncilWorld::on_snapshot(const Event& event) {
  SimMachine& machine = machines_[event.slot];
  if (machine.truth.process != event.a) return;
  if (machine.truth.paused) {
    machine.held.push_back(event);
    return;
  }
  machine.snapshot_under_way = false;
  step(event.slot, raft::Snapshotted{machine.machine.applied(), machine.machine.encode()});
}

void CouncilWorld::send(Slot slot, raft::Send&& send) {
  ++figures_.messages;
  mix(send.message.body.index() ^ send.message.header.term << 8);
  if (options_.trace) line(slot, "->", short_text(send.to) + " " + text_of(send.message));
  for (const auto& checker : checkers_) checker->sent(slot, send);
  if (rng_.chance(1, kEncodeOneIn)) through_codec(send);
  const auto to = slot_of(send.to);
  if (!to) return;
  const Links::Fate fate = links_.fate(slot, *to);
  if (fate.second) queue_.push(now_ + *fate.second, What::message, *to, flights_.put({slot, send}));
  if (fate.first) queue_.push(now_ + *fate.first, What::message, *to, flights_.put({slot, std::move(send)}));
}

// A share of the messages crosses the wire as bytes and must come back with the same meaning.
void CouncilWorld::through_codec(raft::Send& send) {
  ++figures_.encoded;
  const std::string bytes = wire::encode_raft(send.message);
  if (bytes.size() != wire::encoded_size(send.message))
    violation("encoded_size_exact", text_of(send.message) + " takes " + std::to_string(bytes.size()) + " bytes, " +
                                        std::to_string(wire::encoded_size(send.message)) + " were announced");
  if (bytes.size() > wire::kRaftMessageBytes)
    violation("message_fits", text_of(send.message) + " takes " + std::to_string(bytes.size()) + " bytes");
  auto decoded = wire::decode_raft(wire::type_of(send.message.body), send.message.header.sender, bytes);
  if (!decoded) {
    violation("encoded_equal", text_of(send.message) + " could not be read back: " + decoded.error().text());
  } else if (wire::encode_raft(*decoded) != bytes) {
    violation("encoded_equal", text_of(send.message) + " is written to other bytes after it was read");
  } else {
    send.message = std::move(*decoded);
  }
}

void CouncilWorld::on_message(const Event& event) {
  SimMachine& machine = machines_[event.slot];
  const bool here = machine.truth.runs && flights_[event.a].send.to == machine.disk.id;
  if (here && machine.truth.paused && machine.held.size() < kMostHeld) {
    machine.held.push_back(event);
    return;
  }
  Flight flight = flights_.take(event.a);
  if (!here || machine.truth.paused) return;
  step(event.slot, raft::Received{std::move(flight.send.message)});
}

void CouncilWorld::schedule(Slot slot) {
  SimMachine& machine = machines_[slot];
  if (!machine.core) return;
  const Instant wanted = machine.clock.world(machine.core->deadline());
  if (wanted >= machine.tick_at) return;
  machine.tick_at = std::max(wanted, now_);
  queue_.push(machine.tick_at, What::tick, slot, machine.truth.process);
}

void CouncilWorld::on_tick(const Event& event) {
  SimMachine& machine = machines_[event.slot];
  if (machine.truth.process != event.a || event.at != machine.tick_at) return;
  machine.tick_at = kNever;
  if (machine.truth.paused) return;  // resuming brings a Tick
  if (machine.core->deadline() > machine.clock.local(now_)) return schedule(event.slot);
  machine.ticks_in_place = machine.ticked == now_ ? machine.ticks_in_place + 1 : 0;
  machine.ticked = now_;
  if (machine.ticks_in_place > kTicksInPlace) {
    violation("no_spinning", machine.truth.name + " asks for a tick at an instant that has passed, again and again");
    return;
  }
  step(event.slot, raft::Tick{});
}

void CouncilWorld::on_resume(const Event& event) {
  SimMachine& machine = machines_[event.slot];
  if (!machine.truth.paused || machine.pauses != event.a) return;
  machine.truth.paused = false;
  machine.truth.resumed = now_;
  watch_reach();
  note("resume " + machine.truth.name);
  std::vector<Event> held;
  held.swap(machine.held);
  const bool tick_first = rng_.chance(1, 2);
  if (tick_first) step(event.slot, raft::Tick{});
  for (const Event& one : held) handle(one);
  if (!tick_first) step(event.slot, raft::Tick{});
}

}  // namespace dtrain::sim::council
