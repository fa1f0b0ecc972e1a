#include "tests/sim/council/council_world.h"

#include <algorithm>
#include <cstdio>

#include "tests/sim/council/chaos.h"
#include "tests/sim/council/operator.h"
#include "tests/sim/council/trace_text.h"

namespace dtrain::sim::council {
namespace {

constexpr Duration kSampleEvery = 250ms;
constexpr std::uint32_t kSpareMachines = 1;  // from three nodes on: to replace one with
constexpr std::uint32_t kMostClients = 4;

// What Raft logs, for --trace.
class TraceLog final : public Log {
 public:
  TraceLog(bool print, const Instant& now) : print_(print), now_(now) {}
  void write(LogLevel, std::string_view event, std::span<const LogField> fields) override {
    if (!print_) return;
    std::string text = seconds_text(now_) + " ## " + std::string(event);
    for (const LogField& field : fields) text += " " + std::string(field.key) + "=" + field.value;
    std::puts(text.c_str());
  }

 private:
  bool print_;
  const Instant& now_;
};

raft::Configuration configuration_of(const raft::Stored& stored) {
  for (auto entry = stored.log.rbegin(); entry != stored.log.rend(); ++entry)
    if (entry->kind == raft::EntryKind::configuration) return wire::decode_configuration(entry->payload).value_or(raft::Configuration{});
  if (!stored.snapshot) return {};
  return wire::decode_configuration(stored.snapshot->configuration).value_or(raft::Configuration{});
}

// An old copy that knows no other voter asks nobody whether it may vote: no protocol between members could
// stop it.
bool lonely(const raft::Stored& stored) { return configuration_of(stored).voters.size() < 2; }

bool harmless(const FaultSet& faults) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (faults.has(fault) && fault != Fault::stall && fault != Fault::clock_drift) return false;
  }
  return true;
}

}  // namespace

CouncilWorld::CouncilWorld(RunOptions options)
    : options_(std::move(options)),
      rng_(options_.seed * 0x9e3779b97f4a7c15ull + options_.nodes),
      rules_(options_.broken_rule),
      links_(Rng(rng_.next())),
      log_(std::make_unique<TraceLog>(options_.trace, now_)),
      clients_(queue_, Rng(rng_.next()), *this),
      checkers_(all_checkers(*this)),
      only_stalls_(harmless(options_.faults)) {
  draw_options();
}

CouncilWorld::~CouncilWorld() = default;

// Small numbers make the dangerous places near: short logs, snapshots in many pieces, elections all the time.
void CouncilWorld::draw_options() {
  raft_options_.broken_rule = options_.broken_rule;
  window_ = 1000;
  if (only_stalls_) return;
  raft_options_.abandon_history = 5s;  // so that the calm is long enough
  window_ = 40 + rng_.below(80);
  if (rng_.chance(3, 4)) {
    raft_options_.heartbeat = 60ms;
    raft_options_.election_min = 300ms;
    raft_options_.election_max = 600ms;
    raft_options_.check_quorum = 600ms;
    raft_options_.gone_retry = 100ms;
    raft_options_.stall = 150ms;
    raft_options_.settle = 300ms;
    raft_options_.hello_retry = 100ms;
    raft_options_.transfer = 400ms;
    raft_options_.abandon_history = 3s;
    raft_options_.retry = 200ms;
  }
  if (rng_.chance(3, 4)) {
    raft_options_.message_entries = 1 + rng_.below(6);
    raft_options_.message_bytes = 64 + rng_.below(1024);
    raft_options_.window = static_cast<std::uint32_t>(1 + rng_.below(4));
    raft_options_.snapshot_chunk_bytes = 256 + rng_.below(1500);
    raft_options_.promote_lag = 2 + rng_.below(12);
    raft_options_.proposals = 4 + rng_.below(28);
    raft_options_.persist_bytes = 100 + rng_.below(1000);
    raft_options_.log_entries = 150 + rng_.below(200);
  }
  raft_options_.snapshot_every = 15 + rng_.below(60);
  raft_options_.kept_entries = rng_.below(12);
  if (rng_.chance(1, 6)) {  // seldom: who comes new is told a log with older configurations in it
    raft_options_.snapshot_every = 250;
    raft_options_.log_entries = 2000;
  }
  constexpr Duration kBases[] = {200us, 200us, 2ms, 10ms, 30ms};
  const Duration base = kBases[rng_.below(std::size(kBases))];
  links_.set_base(base);
  raft_options_.message_entries += static_cast<std::size_t>(base / 5ms);  // or nobody could follow what clients write
  constexpr Duration kDisks[] = {200us, 1ms, 1ms, 5ms, 20ms};
  disk_takes_ = kDisks[rng_.below(std::size(kDisks))];
}

Slot CouncilWorld::add_machine() {
  const auto slot = static_cast<Slot>(machines_.size());
  CHECK(slot < kMostMachines);
  SimMachine& machine = machines_.emplace_back(window_, rules_);
  machine.truth.name = "h" + std::to_string(slot);
  machine.clock.boot(now_, std::chrono::seconds(rng_.below(1'000'000)));
  machine.disk.id = {0xd1, ++ids_};
  machine.truth.id = machine.disk.id;
  slots_[machine.disk.id] = slot;
  return slot;
}

void CouncilWorld::found() {
  const std::uint32_t nodes = options_.nodes;
  for (std::uint32_t i = 0; i < nodes + (nodes >= 3 ? kSpareMachines : 0); ++i) add_machine();
  const std::uint64_t die = only_stalls_ ? 100 : rng_.below(100);
  first_voters_ = nodes < 3 || die < 15 ? 1 : nodes < 5 || die < 50 ? 3 : 5;
  raft::Configuration configuration;
  for (Slot slot = 0; slot < first_voters_; ++slot) configuration.voters.push_back(machines_[slot].disk.id);
  const raft::History history{1, {0x41, rng_.next()}};
  for (Slot slot = 0; slot < first_voters_; ++slot) machines_[slot].disk.stored = raft::found(history, configuration);
  for (Slot slot = 0; slot < slots(); ++slot) start(slot);
}

void CouncilWorld::start(Slot slot) {
  SimMachine& machine = machines_[slot];
  if (machine.truth.runs) return;
  ++figures_.restarts;
  ++machine.disk.life;
  raft::Self self;
  self.id = machine.disk.id;
  self.life = machine.disk.life;
  self.may_vote = !machine.truth.disk_failed;
  machine.machine = RegisterMachine(window_, rules_);
  if (machine.disk.stored.snapshot && !machine.disk.stored.snapshot->payload.empty() &&
      !machine.machine.decode(machine.disk.stored.snapshot->payload))
    violation("snapshot_readable", machine.truth.name + " has a snapshot on its disk that is none");
  machine.core = std::make_unique<raft::Raft>(self, raft_options_, Rng(rng_.next()), *log_, machine.disk.stored);
  machine.truth.runs = true;
  machine.truth.paused = false;
  machine.truth.started = now_;
  machine.truth.ended = kNever;
  ++machine.truth.process;
  machine.tick_at = kNever;
  note("start " + machine.truth.name + " as " + short_text(self.id) + " life " + std::to_string(self.life));
  for (const auto& checker : checkers_) checker->started(slot);
  watch_reach();
  step(slot, raft::Tick{});
}

void CouncilWorld::end(Slot slot) {
  SimMachine& machine = machines_[slot];
  if (!machine.truth.runs) return;
  note("end of " + machine.truth.name);
  const raft::Counters& counters = machine.core->counters();
  figures_.elections += counters.elections;
  figures_.fenced += counters.fenced;
  figures_.snapshots += counters.snapshots_sent;
  figures_.installs += counters.snapshots_installed;
  if (machine.under_way) {  // wholly there or not
    ++figures_.crashes_in_persist;
    if (!machine.stored_already && rng_.chance(1, 2)) write(slot);
  }
  machine.under_way.reset();
  machine.persist_fails = machine.stored_already = machine.snapshot_under_way = false;
  for (const auto& [number, attempt] : machine.asks)
    if (attempt != SimMachine::kChange) clients_.drop(attempt);
  for (const auto& [index, attempt] : machine.reads) clients_.drop(attempt);
  machine.asks.clear();
  machine.reads.clear();
  for (const Event& event : machine.held) drop(event);
  machine.held.clear();
  machine.core.reset();
  machine.truth.runs = machine.truth.paused = false;
  machine.truth.ended = now_;
  ++machine.truth.process;
  ++machine.pauses;
  for (const auto& checker : checkers_) checker->ended(slot);
  watch_reach();
}

void CouncilWorld::kill(Slot slot) { end(slot); }

void CouncilWorld::reboot(Slot slot) {
  end(slot);
  machines_[slot].clock.boot(now_, 1s);
  machines_[slot].truth.disk_failed = false;
  machines_[slot].fail_next_persist = false;
}

void CouncilWorld::pause(Slot slot, Duration length) {
  SimMachine& machine = machines_[slot];
  if (!machine.truth.runs || machine.truth.paused) return;
  machine.truth.paused = true;
  machine.truth.stopped = now_;
  note("pause " + machine.truth.name + " for " + std::to_string(length.count() / 1'000'000) + "ms");
  watch_reach();
  queue_.push(now_ + length, What::resume, slot, ++machine.pauses);
}

void CouncilWorld::resume_all() {
  for (Slot slot = 0; slot < slots(); ++slot)
    if (machines_[slot].truth.paused) queue_.push(now_, What::resume, slot, machines_[slot].pauses);
}

void CouncilWorld::wipe(Slot slot) {
  SimMachine& machine = machines_[slot];
  CHECK(!machine.truth.runs);
  ++figures_.wiped;
  any_disk_lost_ = true;
  note("the disk of " + machine.truth.name + " is lost");
  slots_.erase(machine.disk.id);
  machine.disk = SimDisk{{0xd1, ++ids_}, 0, {}};
  machine.copy.reset();
  slots_[machine.disk.id] = slot;
  machine.truth.id = machine.disk.id;
  machine.truth.rolled_back = machine.truth.disk_failed = machine.truth.superseded = false;
}

void CouncilWorld::take_copy(Slot slot) { machines_[slot].copy = machines_[slot].disk; }

// By somebody whom the copy would ask. A life in which it never came to greet anyone promised nothing, and nobody can tell it
// from the next, which counts the same number.
bool CouncilWorld::later_life_is_known(const SimMachine& machine) const {
  if (!rules_.hold(raft::Rule::fresh_life_only)) return true;  // nobody remembers any
  const raft::Configuration asked = configuration_of(machine.copy->stored);
  return std::ranges::any_of(machines_, [&](const SimMachine& other) {
    return other.disk.id != machine.disk.id && asked.has(other.disk.id) &&
           std::ranges::any_of(other.disk.stored.hard.lives, [&](const raft::SeenLife& seen) {
             return seen.id() == machine.disk.id && seen.life.number > machine.copy->life;
           });
  });
}

bool CouncilWorld::roll_back(Slot slot) {
  SimMachine& machine = machines_[slot];
  CHECK(!machine.truth.runs);
  // Of the very state that is there it would be no older copy; and who was taken into another history since
  // is new.
  if (!machine.copy || machine.copy->life == machine.disk.life || lonely(machine.copy->stored) ||
      machine.copy->stored.hard.history != machine.disk.stored.hard.history || !later_life_is_known(machine))
    return false;
  ++figures_.rolled_back;
  any_disk_lost_ = true;
  note(machine.truth.name + " is put back to life " + std::to_string(machine.copy->life));
  machine.disk = *machine.copy;
  machine.truth.rolled_back = true;
  return true;
}

void CouncilWorld::recover(Slot slot) {
  SimMachine& machine = machines_[slot];
  const MemberId mark{0x42, rng_.next()};
  note("recover-quorum on " + machine.truth.name);
  if (machine.truth.runs) return tell(slot, raft::Recover{mark});
  const raft::History old = machine.disk.stored.hard.history;
  machine.disk.stored = raft::recovered(std::move(machine.disk.stored), machine.disk.id, mark);
  recovered(slot, old);
}

void CouncilWorld::recovered(Slot slot, const raft::History& old) {
  ++figures_.recoveries;
  newest_ = machines_[slot].disk.stored.hard.history;
  note(machines_[slot].truth.name + " begins history " + std::to_string(newest_.number));
  judge_histories();
  for (const auto& checker : checkers_) checker->recovered(slot, old);
}

// What is under way reaches the disk.
void CouncilWorld::write(Slot slot) {
  SimMachine& machine = machines_[slot];
  const raft::History before = machine.disk.stored.hard.history;
  raft::store(machine.disk.stored, *machine.under_way);
  const raft::History& after = machine.disk.stored.hard.history;
  if (machine.under_way->forget) {
    ++figures_.followed;
    note(machine.truth.name + " follows history " + std::to_string(after.number));
  } else if (!before.none() && after != before) {
    recovered(slot, before);
  }
  judge_histories();
}

void CouncilWorld::judge_histories() {
  for (SimMachine& other : machines_) {
    const raft::History& has = other.disk.stored.hard.history;
    other.truth.superseded = !has.none() && has < newest_;
  }
}

void CouncilWorld::cut(Slot from, Slot to, bool on) {
  links_.cut(from, to, on);
  watch_reach();
}

void CouncilWorld::drift(Slot slot, std::int32_t per_million) {
  SimMachine& machine = machines_[slot];
  machine.clock.drift(now_, per_million);
  machine.tick_at = kNever;
  if (machine.truth.runs && !machine.truth.paused) schedule(slot);
}

void CouncilWorld::send_state(Slot leader, const MemberId& to) {
  const SimMachine& machine = machines_[leader];
  if (!machine.truth.runs || machine.truth.paused) return;
  step(leader, raft::Snapshotted{machine.machine.applied(), machine.machine.encode()});
  step(leader, raft::SendState{to});
}

void CouncilWorld::tell(Slot slot, const raft::Input& input) {
  if (machines_[slot].truth.runs && !machines_[slot].truth.paused) step(slot, input);
}

void CouncilWorld::change(Slot slot, raft::ChangeKind kind, const MemberId& member) {
  SimMachine& machine = machines_[slot];
  if (!machine.truth.runs || machine.truth.paused) return;
  ++figures_.changes;
  machine.asks[++machine.numbers] = SimMachine::kChange;
  step(slot, raft::ChangeAsked{machine.numbers, kind, member});
}

void CouncilWorld::heal_disk(Slot slot) {
  SimMachine& machine = machines_[slot];
  machine.fail_next_persist = false;
  if (!machine.stored_already) machine.persist_fails = false;
  machine.in_next_persist = nullptr;
  machine.disk_takes = 0ns;
}

// Who is cut off from every majority that it knows of.
void CouncilWorld::watch_reach() {
  for (Slot slot = 0; slot < slots(); ++slot) {
    Truth& truth = machines_[slot].truth;
    bool cut_off = false;
    if (truth.runs) {
      const raft::Configuration& configuration = machines_[slot].core->configuration();
      std::size_t reached = 0;
      for (const MemberId& id : configuration.voters) {
        const auto other = slot_of(id);
        if (other &&
            (*other == slot || (machines_[*other].truth.runs && !machines_[*other].truth.paused && links_.both_ways(slot, *other))))
          ++reached;
      }
      cut_off = reached < configuration.voters.size() / 2 + 1;
    }
    if (!cut_off) truth.cut_off_since = kNever;
    else if (truth.cut_off_since == kNever) truth.cut_off_since = now_;
  }
}

void CouncilWorld::sample_later() {
  after(kSampleEvery, [this] {
    watch_reach();
    for (const auto& checker : checkers_) checker->sampled();
    sample_later();
  });
}

std::optional<Slot> CouncilWorld::ready_leader() const {
  std::optional<Slot> best;
  for (Slot slot = 0; slot < slots(); ++slot) {
    const SimMachine& machine = machines_[slot];
    if (!machine.truth.runs || !machine.core->ready() || machine.core->history() < newest_) continue;
    if (!best) {
      best = slot;
      continue;
    }
    const raft::Raft& other = *machines_[*best].core;
    const auto epoch = [](const raft::Raft& core) { return std::pair(core.history().number, core.term()); };
    if (epoch(*machine.core) > epoch(other)) best = slot;
  }
  return best;
}

std::vector<raft::FollowerView> CouncilWorld::followers(Slot slot) const {
  return machines_[slot].core->followers(machines_[slot].clock.local(now_));
}

raft::Configuration CouncilWorld::durable_configuration(Slot slot) const { return configuration_of(machines_[slot].disk.stored); }

std::optional<Slot> CouncilWorld::slot_of(const MemberId& id) const {
  const auto at = slots_.find(id);
  return at == slots_.end() ? std::nullopt : std::optional(at->second);
}

RunResult CouncilWorld::run() {
  const Duration length = std::max(options_.duration, kShortest);
  const Instant busy_until = now_ + (length - kRest);
  found();
  sample_later();
  clients_.begin(now_, static_cast<std::uint32_t>(1 + rng_.below(kMostClients)), slots());
  Operator the_operator(*this, options_.nodes, first_voters_, Rng(rng_.next()));
  Chaos chaos(*this, the_operator, options_.faults, Rng(rng_.next()), busy_until);
  after(kSettle, [&] {
    the_operator.begin();
    chaos.begin();
  });
  run_until(busy_until);
  busy_ = false;
  if (!violation_) {
    chaos.heal();
    note("calm");
    for (const auto& checker : checkers_) checker->healed();
  }
  run_until(busy_until + kRest / 2);
  the_operator.stop();
  run_until(busy_until + kRest * 3 / 4);
  clients_.stop();
  run_until(busy_until + kRest);
  for (const auto& checker : checkers_)
    if (!violation_) checker->at_rest();
  RunResult result;
  result.violation = violation_;
  result.trace_hash = hash_;
  result.covered = now_ - Instant{};
  for (Slot slot = 0; slot < slots(); ++slot) end(slot);
  figures_.events = queue_.taken();
  figures_.writes = clients_.writes();
  figures_.reads = clients_.reads();
  figures_.given_up = clients_.given_up();
  result.figures = figures_;
  return result;
}

void CouncilWorld::run_until(Instant end_at) {
  while (!violation_ && queue_.next() <= end_at) {
    const Event event = queue_.pop();
    now_ = event.at;
    handle(event);
  }
  if (!violation_) now_ = std::max(now_, end_at);
}

void CouncilWorld::after(Duration delay, std::function<void()> action) {
  queue_.push(now_ + delay, What::action, 0, actions_.put(std::move(action)));
}

void CouncilWorld::violation(std::string_view invariant, std::string what) {
  if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), now_};
}

}  // namespace dtrain::sim::council
