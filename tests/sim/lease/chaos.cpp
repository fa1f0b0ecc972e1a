#include "tests/sim/lease/chaos.h"

namespace dtrain::sim::lease {
namespace {

constexpr std::uint32_t kLossPerMille[] = {10, 100, 300};
constexpr std::uint32_t kDuplicatesPerMille = 100;
constexpr std::int32_t kMostDrift = 10'000;  // parts of a million

}  // namespace

Chaos::Chaos(LeaseWorld& world, const FaultSet& permitted, Rng rng, Instant until) : world_(world), rng_(rng), until_(until) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    const bool drawn = rng_.chance(1, 3);
    active_.set(fault, permitted.has(fault) && (drawn || !permitted.is_all()));
  }
  // A wiped store needs an agent that is killed.
  if (permitted.is_all() && active_.has(Fault::wiped_store)) active_.set(Fault::agent_kill);
}

void Chaos::begin() {
  constexpr Duration kPaces[] = {3s, 8s, 16s};
  const Duration pace = kPaces[rng_.below(std::size(kPaces))];
  if (active_.has(Fault::loss)) world_.links().set_loss(kLossPerMille[rng_.below(std::size(kLossPerMille))]);
  if (active_.has(Fault::duplicate)) world_.links().set_duplicates(kDuplicatesPerMille);
  if (active_.has(Fault::delay)) world_.links().set_delays(true);
  for (Slot slot = kCandidates; slot < world_.machines(); ++slot) world_.host(slot).set_slow_freeze(active_.has(Fault::slow_freeze));
  if (active_.has(Fault::clock_drift))
    for (Slot slot = 0; slot < world_.machines(); ++slot) {
      const auto drift = static_cast<std::int32_t>(rng_.below(3)) * kMostDrift - kMostDrift;
      slot < kCandidates ? world_.drift_candidate(slot, drift) : world_.host(slot).set_drift(drift);
    }
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    mean_[i] = pace / 2 + upto(pace);
    if (active_.has(fault)) next(fault);
  }
}

void Chaos::next(Fault fault) {
  world_.after(upto(2 * mean_[static_cast<std::size_t>(fault)]), [this, fault] {
    if (over_ || world_.now() >= until_) return;
    strike(fault);
    next(fault);
  });
}

void Chaos::for_a_while(Duration longest, std::function<void()> undo) {
  const auto key = undo_.add(std::move(undo));
  world_.after(longest, [this, key] { undo_.undo(key); });
}

void Chaos::strike(Fault fault) {
  const Slot slot = a_host();
  SimHost& host = world_.host(slot);
  switch (fault) {
    case Fault::slow_acks: {
      const Slot candidate = static_cast<Slot>(rng_.below(kCandidates));
      world_.slow_replies(candidate, upto(6s));
      return for_a_while(a_while(), [this, candidate] { world_.slow_replies(candidate, 0ns); });
    }
    case Fault::slow_disk: return slow_disks(a_while());
    case Fault::partition: return cut_for(council::links_across(rng_.next(), world_.machines()), "partition", a_while());
    case Fault::isolate: return cut_for(council::links_of(machine(), world_.machines()), "isolate", a_while());
    case Fault::flapping: return flap(slot, 3);
    case Fault::one_way: return one_way();
    case Fault::shim_pause: return pause_shim(slot);
    case Fault::agent_pause:
      if (host.pause_agent()) for_a_while(a_while(), [&host] { host.resume_agent(); });
      return;
    case Fault::coordinator_pause: return pause_coordinator();
    case Fault::deposed: return depose();
    case Fault::host_pause:
      if (active_.has(Fault::agent_kill) && rng_.chance(1, 3)) kill_agent(slot);
      if (host.pause_host()) for_a_while(a_while(), [&host] { host.resume_host(); });
      return;
    case Fault::agent_kill:
      if (active_.has(Fault::isolate) && rng_.chance(1, 3)) cut_for(council::links_of(slot, world_.machines()), "isolate", a_while());
      return kill_agent(slot);
    case Fault::reboot:
      if (!host.up()) return;
      host.power_off();
      return for_a_while(a_while(), [&host] { host.power_on(); });
    case Fault::task_crash: return host.crash_a_task(rng_);
    case Fault::move: return world_.move(static_cast<std::uint32_t>(rng_.below(kTasks)));
    default: return;
  }
}

void Chaos::pause_coordinator() {
  const auto slot = world_.coordinating();
  if (!slot) return;
  world_.pause_candidate(*slot, true);
  for_a_while(a_while(), [this, slot = *slot] { world_.pause_candidate(slot, false); });
}

void Chaos::kill_agent(Slot slot) {
  SimHost& host = world_.host(slot);
  const bool wipe = active_.has(Fault::wiped_store) && rng_.chance(1, 2);
  if (host.kill_agent(wipe)) for_a_while(a_while(), [&host] { host.start_agent(); });
}

// Answers that its voters sent earlier arrive late, and requests of hosts arrive in between. The next coordinator is left alone
// until the cut is over, so that it may replace what is cut off.
void Chaos::depose() {
  const auto slot = world_.coordinating();
  if (!slot || world_.now() < deposed_until_) return;
  const Duration lasts = 10s + upto(15s);
  deposed_until_ = world_.now() + lasts;
  for (Slot other = 0; other < kCandidates; ++other)
    if (other != *slot) world_.slow_replies(other, 4s + upto(6s));
  world_.after(upto(1s), [this, slot = *slot, lasts] {
    for (Slot other = 0; other < kCandidates; ++other) world_.slow_replies(other, 0ns);
    if (over_) return;
    world_.pause_candidate(slot, true);
    world_.after(2s + upto(4s), [this, slot] { world_.pause_candidate(slot, false); });
    std::uint64_t away = std::uint64_t{1} << slot;
    for (Slot host = kCandidates; host < world_.machines(); ++host)
      if (rng_.chance(1, 2)) away |= std::uint64_t{1} << host;
    cut_for(council::links_across(away, world_.machines()), "deposed", lasts);
  });
}

void Chaos::cut_for(const council::LinkList& links, const char* what, Duration away) {
  world_.note(what, 0, links.size());
  for (const auto& [from, to] : links) world_.cut(from, to, true);
  for_a_while(away, [this, links] {
    for (const auto& [from, to] : links) world_.cut(from, to, false);
  });
}

void Chaos::slow_disks(Duration lasts) {
  const auto set = [this](Duration takes) {
    for (Slot candidate = 0; candidate < kCandidates; ++candidate) world_.slow_disk(candidate, takes);
  };
  set(upto(4s));
  for_a_while(lasts, [set] { set(0ns); });
}

// With slow disks it often comes back while its loss is being committed, and is gone again when a successor begins.
void Chaos::flap(Slot slot, std::uint32_t more) {
  const Duration away = upto(18s);
  if (active_.has(Fault::slow_disk) && rng_.chance(1, 2)) slow_disks(away + 1s);
  cut_for(council::links_of(slot, world_.machines()), "flapping", away);
  if (more == 0) return;
  world_.after(away + upto(2s), [this, slot, more] {
    if (!over_) flap(slot, more - 1);
  });
}

// Sometimes the shim's agent is in a new life and has passed on no grant since.
void Chaos::pause_shim(Slot slot) {
  SimHost& host = world_.host(slot);
  const auto pause = [this, &host] {
    if (!over_ && host.pause_shim(rng_)) for_a_while(a_while(), [&host] { host.resume_shims(); });
  };
  const bool new_life = active_.has(Fault::agent_kill) && rng_.chance(1, 3);
  if (!new_life || !host.kill_agent(false)) return pause();
  host.start_agent();
  cut_for(council::links_of(slot, world_.machines()), "new life cut off", a_while());
  world_.after(400ms, pause);
}

void Chaos::one_way() {
  const Slot one = machine();
  council::LinkList links;
  for (Slot other = 0; other < world_.machines(); ++other) {
    const bool cut = other != one && !rng_.chance(1, 3);
    if (cut) links.emplace_back(one, other);
  }
  cut_for(links, "one way", a_while());
}

void Chaos::heal() {
  over_ = true;
  undo_.undo_all();
  world_.links().heal();
  for (Slot slot = 0; slot < kCandidates; ++slot) {
    world_.slow_replies(slot, 0ns);
    world_.pause_candidate(slot, false);
  }
  for (Slot slot = kCandidates; slot < world_.machines(); ++slot) {
    SimHost& host = world_.host(slot);
    host.set_slow_freeze(false);
    host.power_on();
    host.resume_host();
    host.resume_shims();
    host.resume_agent();
    host.start_agent();
  }
}

}  // namespace dtrain::sim::lease
