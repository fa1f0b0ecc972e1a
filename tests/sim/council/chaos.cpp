#include "tests/sim/council/chaos.h"

#include <algorithm>

namespace dtrain::sim::council {
namespace {

constexpr std::uint32_t kLossPerMille[] = {10, 50, 150, 300};
constexpr std::uint32_t kDuplicatesPerMille[] = {10, 100};
constexpr std::uint32_t kDriftPerMillion = 10'000;  // 1 %
constexpr std::uint32_t kMostRecoveries = 2;
constexpr std::uint32_t kRecoverTries = 20;
constexpr Duration kAskAgain = 2s;
constexpr Duration kLookAgain = 20ms;
constexpr Duration kLongestStall = 800ms;

bool starts_once(Fault fault) {
  return fault == Fault::loss || fault == Fault::duplicate || fault == Fault::delay || fault == Fault::clock_drift ||
         fault == Fault::resize || fault == Fault::hasty_resize || fault == Fault::gone || fault == Fault::stall;
}

// The rarer ones: each costs a member, or everything stands still for a while.
bool seldom(Fault fault) {
  return fault == Fault::outage || fault == Fault::lost_disk || fault == Fault::recover_quorum || fault == Fault::isolate;
}

}  // namespace

Chaos::Chaos(CouncilWorld& world, Operator& the_operator, const FaultSet& permitted, Rng rng, Instant until)
    : world_(world), operator_(the_operator), rng_(rng), until_(until) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    // What came later is drawn from a copy: all else of a seed stays as it is.
    Rng copy = rng_;
    const bool drawn =
        (fault == Fault::new_state ? copy : rng_).below(6) < (fault == Fault::recover_quorum || fault == Fault::outage ? 1 : 2);
    active_.set(fault, permitted.has(fault) && (drawn || !permitted.is_all()));
  }
}

void Chaos::begin() {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (!active_.has(fault)) continue;
    mean_[i] = seldom(fault) ? between(8s, 30s) : between(1s, 8s);
    if (starts_once(fault)) lasting(fault);
    else next(fault);
  }
}

void Chaos::next(Fault fault) {
  world_.after(upto(2 * mean_[static_cast<std::size_t>(fault)]), [this, fault] {
    if (over_) return;
    if (!quiet()) strike(fault);
    next(fault);
  });
}

void Chaos::for_a_while(Duration longest, std::function<void()> undo) {
  world_.after(upto(longest), [this, key = undo_.add(std::move(undo))] { undo_.undo(key); });
}

void Chaos::heal() {
  over_ = true;
  undo_.undo_all();
  world_.links().heal();
  world_.resume_all();
  operator_.set_hasty(false);
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    world_.heal_disk(slot);
    const Truth& truth = world_.truth(slot);
    const bool late = std::ranges::count(away_, slot) != 0;
    const bool anew = truth.rolled_back || (truth.superseded && (wrongly_ || late));
    if (world_.disk_failed(slot) || anew) world_.reboot(slot);
    if (anew) world_.wipe(slot);
    world_.start(slot);
  }
}

std::optional<Slot> Chaos::someone() {
  if (const auto found = leader(); found && rng_.chance(2, 5)) return found;
  for (int tries = 0; tries < 16; ++tries) {
    const auto slot = static_cast<Slot>(rng_.below(world_.slots()));
    if (world_.truth(slot).runs) return slot;
  }
  return std::nullopt;
}

void Chaos::come_back(Slot slot, Duration after) {
  world_.after(after, [this, slot] {
    if (!over_) world_.start(slot);
  });
}

// Who has a connection to it sees it reset, connects anew, and is refused.
void Chaos::told_gone(Slot gone) {
  if (!active_.has(Fault::gone)) return;
  const MemberId id = world_.truth(gone).id;
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    if (slot == gone || !world_.linked(slot, gone) || !rng_.chance(5, 6)) continue;
    world_.after(upto(15ms), [this, slot, gone, id] {
      if (!over_ && !world_.truth(gone).runs && world_.truth(gone).id == id) world_.tell(slot, raft::LeaderGone{id});
    });
  }
}

void Chaos::crash(Slot slot, Duration back_after) {
  world_.kill(slot);
  told_gone(slot);
  come_back(slot, back_after);
}

void Chaos::outage() {
  const std::uint64_t share = rng_.chance(1, 2) ? 100 : 60;
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    if (rng_.below(100) >= share) continue;
    world_.after(upto(rng_.chance(1, 2) ? 5ms : 1s), [this, slot] {
      if (quiet() || !world_.truth(slot).runs) return;
      world_.kill(slot);
      come_back(slot, between(10ms, 3s));
    });
  }
}

void Chaos::cut_for(std::vector<std::pair<Slot, Slot>> links, Duration longest) {
  for (const auto& [from, to] : links) world_.cut(from, to, true);
  ++cuts_;
  world_.note("cut of " + std::to_string(links.size()) + " links");
  for_a_while(longest, [this, links] {
    for (const auto& [from, to] : links) world_.cut(from, to, false);
    --cuts_;
    world_.note("end of a cut of " + std::to_string(links.size()) + " links");
  });
}

void Chaos::partition() { cut_for(links_across(rng_.next(), world_.slots()), 8s); }

void Chaos::isolate() {
  const auto one = someone();
  if (one) cut_for(links_of(*one, world_.slots()), 20s);
}

void Chaos::one_way() {
  const auto one = someone();
  if (!one) return;
  const bool mute = rng_.chance(1, 2);
  std::vector<std::pair<Slot, Slot>> links;
  for (Slot other = 0; other < world_.slots(); ++other) {
    if (other == *one || rng_.chance(1, 3)) continue;
    if (mute) links.emplace_back(*one, other);
    else links.emplace_back(other, *one);
  }
  cut_for(std::move(links), 8s);
}

// One at a time, so that every majority runs at every instant.
void Chaos::stall() {
  if (over_) return;
  if (const auto one = someone(); one && !quiet() && !world_.truth(*one).paused) {
    const Duration most = std::min<Duration>(kLongestStall, world_.options().election_min * 8 / 10);
    const Duration length = upto(most);
    world_.pause(*one, length);
    world_.after(length + upto(2s), [this] { stall(); });
    return;
  }
  world_.after(upto(2s), [this] { stall(); });
}

void Chaos::lose_disk() {
  const auto one = operator_.expendable();
  if (!one) return;
  operator_.lost(world_.truth(*one).id);
  world_.reboot(*one);
  world_.wipe(*one);
  come_back(*one, between(100ms, 3s));
}

// Until `length` is over.
void Chaos::be_quiet(Duration length) {
  quiet_until_ = world_.now() + length;
  world_.links().set_quiet(true);
  for (Slot slot = 0; slot < world_.slots(); ++slot) world_.heal_disk(slot);
  world_.after(length, [this] { world_.links().set_quiet(false); });
}

// A member that was put back may vote when nobody who remembers it can be reached for a second: more is not
// promised. So all the others run and hear each other while it starts.
void Chaos::old_disk() {
  for (Slot slot = 0; slot < world_.slots(); ++slot)
    if (world_.truth(slot).runs && rng_.chance(1, 3)) world_.take_copy(slot);
  const auto one = operator_.expendable();
  if (!one || cuts_ > 0 || rng_.chance(1, 2)) return;
  const MemberId id = world_.truth(*one).id;
  world_.reboot(*one);
  const Duration away = between(400ms, 1s);
  if (world_.roll_back(*one)) {
    operator_.lost(id);
    be_quiet(away + 2s);
  }
  come_back(*one, away);
}

// All but one voter seem lost for ever. In most cases they are: of the others fewer than a majority come back with their
// disks, and find their way into the new history by themselves; or all do, one after the other, and find each other there. In
// the rest the others had each other all along, and go on.
void Chaos::recover_quorum() {
  if (recoveries_ >= kMostRecoveries || !operator_.settled()) return;
  const std::vector<MemberId> voters = world_.core(*leader())->configuration().voters;
  const auto survivor = world_.slot_of(voters[rng_.below(voters.size())]);
  if (!survivor || !operator_.expendable()) return;
  ++recoveries_;
  if (rng_.chance(1, 3)) {
    wrongly_ = true;
    cut_for(links_of(*survivor, world_.slots()), 10s);
    return recover_later(*survivor, between(1s, 6s), 1);
  }
  const bool runs_on = rng_.chance(1, 2), all_come_back = rng_.chance(1, 2);
  std::size_t back = 0;
  for (const MemberId& id : voters) {
    const auto slot = world_.slot_of(id);
    if (!slot || (*slot == *survivor && runs_on)) continue;
    world_.reboot(*slot);
    if (*slot == *survivor) continue;
    const bool more = back++ >= voters.size() / 2;
    if (more && all_come_back) away_.push_back(*slot);
    if (more && all_come_back) continue;
    if (more) world_.wipe(*slot);
    come_back(*slot, between(1s, 8s));
  }
  come_back_one_by_one();
  strike_while_one_catches_up(*survivor, world_.now() + 30s);
  if (runs_on) return recover_later(*survivor, between(500ms, 4s), kRecoverTries);
  world_.recover(*survivor);
  come_back(*survivor, upto(1s));
}

// While a leader is heard there it is refused, and a crash or the disk may undo it: who knows that the others are gone asks again.
void Chaos::recover_later(Slot survivor, Duration after, std::uint32_t tries) {
  const MemberId id = world_.truth(survivor).id;
  const std::uint64_t done = world_.figures().recoveries;
  world_.after(after, [this, survivor, id, done, tries] {
    const Truth& truth = world_.truth(survivor);
    if (over_ || truth.id != id || truth.superseded || truth.rolled_back || world_.figures().recoveries != done) return;
    if (truth.runs) world_.recover(survivor);
    if (tries > 1) recover_later(survivor, kAskAgain, tries - 1);
  });
}

// Never two of the older history at once: they could be a majority of it.
void Chaos::come_back_one_by_one() {
  world_.after(kLookAgain, [this] {
    if (over_ || away_.empty()) return;
    bool together = true;
    for (Slot slot = 0; slot < world_.slots(); ++slot) together = together && !(world_.truth(slot).runs && world_.truth(slot).superseded);
    if (together && world_.truth(away_.back()).superseded) {
      world_.start(away_.back());
      away_.pop_back();
    }
    come_back_one_by_one();
  });
}

// Who comes back has for a while only a part of the log, with the older history's configurations: the time to do without
// the survivor.
void Chaos::strike_while_one_catches_up(Slot survivor, Instant until) {
  world_.after(kLookAgain, [this, survivor, until] {
    if (over_ || world_.now() > until) return;
    const raft::Raft* leads = world_.core(survivor);
    for (Slot slot = 0; leads && !quiet() && slot < world_.slots(); ++slot) {
      const raft::Raft* other = world_.core(slot);
      if (!other || slot == survivor || other->history() != leads->history() || other->history().number < 2 || other->last_index() == 0 ||
          other->last_index() >= leads->last_index() || !rng_.chance(1, 4))
        continue;
      return crash(survivor, between(1s, 6s));
    }
    strike_while_one_catches_up(survivor, until);
  });
}

void Chaos::strike(Fault fault) {
  const auto one = someone();
  if (!one) return;
  switch (fault) {
    case Fault::crash: {
      const Slot slot = *one;
      const Duration back_after = rng_.chance(1, 2) ? between(10ms, 500ms) : between(500ms, 5s);
      if (rng_.chance(1, 2)) return crash(slot, back_after);
      return world_.in_next_persist(slot, [this, slot, back_after] {
        if (!quiet() && world_.truth(slot).runs) crash(slot, back_after);
      });
    }
    case Fault::outage: return outage();
    case Fault::reboot: world_.reboot(*one); return come_back(*one, between(1s, 6s));
    case Fault::pause: return world_.pause(*one, rng_.chance(1, 2) ? between(10ms, 1s) : between(1s, 6s));
    case Fault::new_state: {
      const auto leads = leader();
      if (!leads || *leads == *one) return;
      world_.tell(*one, raft::WantState{});
      const MemberId id = world_.truth(*one).id;
      for (int times = 0; times < 3; ++times)
        world_.after(upto(2s), [this, id] {
          if (const auto sends = leader(); sends && !over_) world_.send_state(*sends, id);
        });
      return;
    }
    case Fault::partition: return partition();
    case Fault::isolate: return isolate();
    case Fault::one_way: return one_way();
    case Fault::slow_disk: {
      const Slot slot = *one;
      world_.slow_disk(slot, 300ms);
      return for_a_while(8s, [this, slot] { world_.slow_disk(slot, 0ns); });
    }
    case Fault::disk_error: {
      const Slot slot = *one;
      world_.fail_disk(slot);
      return for_a_while(6s, [this, slot] {
        if (!world_.truth(slot).disk_failed) return;
        Duration reboots_after = 0ns;
        if (rng_.chance(1, 4)) {  // the agent alone first: it still must not vote
          world_.kill(slot);
          world_.start(slot);
          reboots_after = upto(3s);
        }
        world_.after(reboots_after, [this, slot] {
          if (over_ || !world_.truth(slot).disk_failed) return;
          world_.reboot(slot);
          come_back(slot, between(100ms, 2s));
        });
      });
    }
    case Fault::lost_disk: return lose_disk();
    case Fault::old_disk: return old_disk();
    case Fault::transfer:
      if (const auto from = leader()) {
        const auto& voters = world_.core(*from)->configuration().voters;
        world_.tell(*from, raft::TransferAsked{rng_.chance(1, 4) ? MemberId{} : voters[rng_.below(voters.size())]});
      }
      return;
    case Fault::false_gone:
      if (const auto well = leader()) {
        const MemberId id = world_.truth(*well).id;
        const bool all = rng_.chance(1, 3);
        for (Slot slot = 0; slot < world_.slots(); ++slot)
          if (slot != *well && (all || rng_.chance(1, 3))) world_.tell(slot, raft::LeaderGone{id});
      }
      return;
    case Fault::recover_quorum: return recover_quorum();
    default: return;
  }
}

void Chaos::lasting(Fault fault) {
  switch (fault) {
    case Fault::loss: return world_.links().set_loss(kLossPerMille[rng_.below(std::size(kLossPerMille))]);
    case Fault::duplicate: return world_.links().set_duplicates(kDuplicatesPerMille[rng_.below(std::size(kDuplicatesPerMille))]);
    case Fault::delay: return world_.links().set_delays(true);
    case Fault::clock_drift:
      for (Slot slot = 0; slot < world_.slots(); ++slot)
        world_.drift(slot, static_cast<std::int32_t>(rng_.below(2 * kDriftPerMillion + 1)) - static_cast<std::int32_t>(kDriftPerMillion));
      return;
    case Fault::resize: return operator_.set_resizing(true);
    case Fault::hasty_resize: return operator_.set_hasty(true);
    case Fault::stall: return stall();
    default: return;
  }
}

}  // namespace dtrain::sim::council
