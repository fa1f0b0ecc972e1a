#include "tests/sim/lease/lease_world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "tests/sim/counters.h"
#include "tests/sim/lease/chaos.h"

namespace dtrain::sim::lease {
namespace {

constexpr const char* kKinds[] = {"vote?", "vote",    "append", "append-reply", "copy",    "probe",
                                  "alive", "refused", "report", "request",      "granted", "superseded"};

constexpr Counter<Figures> kCounters[] = {
    {"events", &Figures::events},         {"messages", &Figures::messages},
    {"rounds", &Figures::rounds},         {"granted", &Figures::granted},
    {"superseded", &Figures::superseded}, {"placed", &Figures::placed},
    {"by_lease", &Figures::by_lease},     {"by_grace", &Figures::by_grace},
    {"by_exit", &Figures::by_exit},       {"by_boot", &Figures::by_boot},
    {"starts", &Figures::starts},         {"freezes", &Figures::freezes},
    {"thaws", &Figures::thaws},           {"kills", &Figures::kills},
    {"unfenced", &Figures::unfenced},     {"guard_freezes", &Figures::guard_freezes},
    {"excused", &Figures::excused},       {"refused", &Figures::refused},
};

}  // namespace

void Figures::join(const Figures& run) { join_counters(kCounters, *this, run); }
nlohmann::json Figures::json() const { return counters_json(kCounters, *this); }

LeaseWorld::LeaseWorld(RunOptions options)
    : options_(std::move(options)),
      rng_(options_.seed * 0x9e3779b97f4a7c15ull + options_.nodes),
      links_(Rng(rng_.next())),
      checkers_(all_checkers(*this)) {
  constexpr Duration kLeases[] = {4s, 6s, 10s}, kGraces[] = {12s, 18s}, kBases[] = {200us, 2ms, 50ms};
  setting_.lease = kLeases[rng_.below(std::size(kLeases))];
  setting_.agent_grace = kGraces[rng_.below(std::size(kGraces))];
  setting_.hosts = options_.nodes;
  constexpr Keeps kKeeps[] = {Keeps::lease, Keeps::lease, Keeps::none, Keeps::later};
  setting_.keeps[1] = kKeeps[rng_.below(std::size(kKeeps))];
  setting_.in_place = !rng_.chance(1, 3);
  setting_.broken_rule = options_.broken_rule;
  base_ = kBases[rng_.below(std::size(kBases))];
  links_.set_base(base_);
  for (Slot slot = 0; slot < kCandidates; ++slot) {
    Candidate& candidate = candidates_[slot];
    candidate.clock.boot(now_, upto(100s));
    const auto send = [this, slot](Message message) {
      message.from = slot;
      this->send(std::move(message));
    };
    candidate.voter.emplace(slot, setting_.hosts, Rng(rng_.next()), send);
    candidate.coordinator.emplace(setting_, *candidate.voter, Rng(rng_.next()), send);
  }
  for (Slot slot = kCandidates; slot < machines(); ++slot)
    hosts_.push_back(std::make_unique<SimHost>(slot, setting_, *this, Rng(rng_.next())));
}

std::vector<std::string> LeaseWorld::checker_names() const {
  std::vector<std::string> names;
  for (const auto& checker : checkers_) names.emplace_back(checker->name());
  return names;
}

void LeaseWorld::mix(std::uint64_t value) {
  hash_ = (hash_ ^ value) * 0xff51afd7ed558ccdull;
  hash_ ^= hash_ >> 29;
}

void LeaseWorld::note(const char* what, Slot machine, std::uint64_t detail) {
  mix(machine << 16 ^ detail);
  if (options_.trace)
    std::printf("%s == m%u %s %llu\n", seconds_text(now_).c_str(), machine, what, static_cast<unsigned long long>(detail));
}

void LeaseWorld::violation(std::string_view invariant, std::string what) {
  if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), now_};
}

void LeaseWorld::after(Duration delay, std::function<void()> action) {
  queue_.push(now_ + delay, What::action, 0, actions_.put(std::move(action)));
}

// ---------------------------------------------------------------- network

void LeaseWorld::send(Message message) {
  ++figures_.messages;
  mix(message.to << 8 ^ static_cast<std::uint64_t>(message.kind));
  if (options_.trace)
    std::printf("%s m%u -> m%u %s term %llu round %llu member %u task %u.%u\n", seconds_text(now_).c_str(), message.from, message.to,
                kKinds[static_cast<std::size_t>(message.kind)], static_cast<unsigned long long>(message.term),
                static_cast<unsigned long long>(message.round), message.member, message.task, message.generation);
  auto fate = links_.fate(message.from, message.to);
  if (fate.first && message.kind == Kind::append_reply) {
    const Duration slow = candidates_[message.from].slow_replies / 2;
    *fate.first += slow + upto(slow);
  }
  if (fate.second) queue_.push(now_ + *fate.second, What::deliver, 0, messages_.put(message));
  if (fate.first) queue_.push(now_ + *fate.first, What::deliver, 0, messages_.put(std::move(message)));
}

void LeaseWorld::deliver(const Message& message) {
  mix(message.from ^ static_cast<std::uint64_t>(now_.time_since_epoch().count()));
  if (message.to >= kCandidates) return host(message.to).receive(message);
  if (candidates_[message.to].paused) return candidates_[message.to].inbox.push_back(message);
  hear(message.to, message);
}

// ---------------------------------------------------------------- candidates

void LeaseWorld::hear(Slot slot, const Message& message) {
  Candidate& candidate = candidates_[slot];
  const Instant local = candidate.clock.local(now_);
  if (message.kind <= Kind::append_reply) candidate.voter->receive(local, message);
  else candidate.coordinator->receive(local, message);
  settle(slot);
}

void LeaseWorld::tick(Slot slot) {
  Candidate& candidate = candidates_[slot];
  const Instant local = candidate.clock.local(now_);
  candidate.voter->tick(local);
  candidate.coordinator->follow_voter(local);
  candidate.coordinator->tick(local);
  settle(slot);
}

void LeaseWorld::settle(Slot slot) {
  Candidate& candidate = candidates_[slot];
  candidate.coordinator->follow_voter(candidate.clock.local(now_));
  for (const Coordinator::Replaced& done : candidate.coordinator->take_replaced()) {
    ++figures_.placed;
    if (done.before.why == End::lease) ++figures_.by_lease;
    if (done.before.why == End::grace) ++figures_.by_grace;
    if (done.before.why == End::reported) ++figures_.by_exit;
    if (done.before.why == End::rebooted) ++figures_.by_boot;
    note("places task", done.after.host, done.task * 1000 + done.after.generation);
  }
  const Instant local = std::min(candidate.voter->deadline(), candidate.coordinator->deadline());
  const Instant wanted = std::max(candidate.clock.world(local), now_);
  if (wanted >= candidate.tick_at && candidate.tick_at > now_) return;
  candidate.tick_at = wanted;
  after(wanted - now_, [this, slot, wanted] {
    Candidate& due = candidates_[slot];
    if (due.tick_at != wanted) return;
    due.tick_at = kNever;
    if (!due.paused) tick(slot);
  });
}

void LeaseWorld::pause_candidate(Slot slot, bool on) {
  Candidate& candidate = candidates_[slot];
  if (candidate.paused == on) return;
  note(on ? "pause" : "resume", slot, 0);
  candidate.paused = on;
  if (on) return;
  // Whether a candidate reads its messages or looks at the clock first is random.
  const bool clock_first = rng_.chance(1, 2);
  if (clock_first) tick(slot);
  for (const Message& message : std::exchange(candidate.inbox, {})) hear(slot, message);
  if (!clock_first) tick(slot);
}

void LeaseWorld::drift_candidate(Slot slot, std::int32_t per_million) { candidates_[slot].clock.drift(now_, per_million); }

std::optional<Slot> LeaseWorld::coordinating() const {
  std::optional<Slot> found;
  std::uint64_t highest = 0;
  for (Slot slot = 0; slot < kCandidates; ++slot)
    if (candidates_[slot].coordinator->active() && candidates_[slot].voter->term() >= highest) {
      highest = candidates_[slot].voter->term();
      found = slot;
    }
  return found;
}

void LeaseWorld::move(std::uint32_t task) {
  const auto slot = coordinating();
  if (!slot || candidates_[*slot].paused) return;
  note("move task", *slot, task);
  candidates_[*slot].coordinator->move(candidates_[*slot].clock.local(now_), task);
  settle(*slot);
}

void LeaseWorld::need_leases() {
  const auto slot = coordinating();
  if (slot && !candidates_[*slot].paused) {
    const Instant local = candidates_[*slot].clock.local(now_);
    candidates_[*slot].coordinator->need_leases(local);
    for (const auto& each : hosts_)
      for (Member member = each->forgotten(); member >> 8 != 0; member -= 0x100) candidates_[*slot].coordinator->forget(local, member);
    settle(*slot);
  }
  after(5s, [this] { need_leases(); });  // it may have been lost
}

// ---------------------------------------------------------------- a run

RunResult LeaseWorld::run() {
  const Duration length = std::max(options_.duration, kShortest);
  const Instant busy_until = now_ + (length - kRest - kEnd);
  Chaos chaos(*this, options_.faults, Rng(rng_.next()), busy_until);
  for (Slot slot = 0; slot < kCandidates; ++slot) tick(slot);
  for (const auto& each : hosts_) each->power_on();
  chaos.begin();
  after(5s + upto(20s), [this] { need_leases(); });
  run_until(busy_until);
  chaos.heal();
  note("calm", 0, 0);
  run_until(busy_until + kRest);
  std::vector<Instance> standing;
  for (const auto& each : hosts_)
    for (const Instance& instance : each->standing()) standing.push_back(instance);
  for (const auto& checker : checkers_)
    if (!violation_) checker->at_rest(standing);
  if (!violation_) lose_for_good();
  run_until(busy_until + kRest + kEnd);
  for (const auto& checker : checkers_)
    if (!violation_) checker->over();
  RunResult result;
  result.violation = violation_;
  result.trace_hash = hash_;
  result.covered = now_ - Instant{};
  figures_.events = queue_.taken();
  for (const Candidate& candidate : candidates_) {
    const auto& counters = candidate.coordinator->counters();
    figures_.rounds += counters.rounds;
    figures_.granted += counters.granted;
    figures_.superseded += counters.superseded;
  }
  for (const auto& each : hosts_) {
    const HostFigures& figures = each->figures();
    figures_.starts += figures.starts;
    figures_.freezes += figures.freezes;
    figures_.thaws += figures.thaws;
    figures_.kills += figures.kills;
    figures_.unfenced += figures.unfenced;
    figures_.guard_freezes += figures.guard_freezes;
    figures_.excused += figures.excused;
    figures_.refused += figures.refused;
  }
  result.figures = figures_;
  return result;
}

// Task 0 always runs under a lease. A successor comes once the host counts as dead or its agent's grace is over, and what is
// counted on any clock. The slack: what happened is noticed at the next probe, which goes out at a look, and at the look after its
// answer; then at most twenty messages pass one after another: for the loss of the host, the place, the host's report that all is
// staged, the question and the round.
void LeaseWorld::lose_for_good() {
  if (options_.nodes < 2) return;
  const auto it = std::find_if(hosts_.begin(), hosts_.end(), [](const auto& each) { return each->runs(0); });
  if (it == hosts_.end()) return;
  SimHost& lost = **it;
  const bool agent_only = rng_.chance(1, 2);
  note(agent_only ? "agent lost for good" : "host lost for good", 0, 0);
  const Duration slack = Coordinator::kProbe + 2 * Coordinator::kLook + 20 * 2 * base_, drift = counted_lease(setting_.lease) / 50;
  Instant earliest = now_, latest;
  if (agent_only) {
    lost.kill_agent(false);
    earliest += setting_.agent_grace * 98 / 100;
    latest = now_ + std::max(setting_.agent_grace * 102 / 100, counted_lease(setting_.lease) + drift) + slack;
  } else {
    lost.power_off();
    latest = now_ + std::max(counted_lease(setting_.lease) + drift, Coordinator::kDead + Coordinator::kProbe) + slack;
  }
  for (const auto& checker : checkers_) checker->lost_for_good(0, earliest, latest);
}

void LeaseWorld::run_until(Instant end) {
  while (!violation_ && queue_.next() <= end) {
    const auto event = queue_.pop();
    now_ = event.at;
    if (event.what == What::deliver) {
      deliver(messages_.take(event.a));
    } else {
      const auto action = actions_.take(event.a);
      action();
    }
  }
  if (!violation_) now_ = std::max(now_, end);
}

}  // namespace dtrain::sim::lease
