#include "tests/sim/membership/chaos.h"

#include <algorithm>

namespace dtrain::sim::membership {
namespace {

constexpr std::uint32_t kFewNodes = 200;  // above: only faults that a large cluster is asked about
constexpr Duration kStallStopped = 16400ms, kStallRuns = 64ms;
constexpr std::uint32_t kLossPerMille[] = {10, 50, 100, 250};
constexpr std::uint32_t kMassOfAll = 2000,
                        kMassPercent = 5;  // members; of more a share: tables of their own take gigabytes
constexpr std::uint32_t kNewSeeds = 8;
constexpr std::uint32_t kLossOfMany = 100;
constexpr std::uint32_t kDriftPerMillion = 10'000;  // 1 %
constexpr Duration kLongRun = 1h, kLongMean = 60s;  // in a long run things happen this often

bool starts_once(Fault fault) {
  return fault == Fault::loss || fault == Fault::duplicate || fault == Fault::clock_drift || fault == Fault::stall_third ||
         fault == Fault::mass_restart || fault == Fault::other_cluster;
}

bool for_many(Fault fault) {
  return fault == Fault::loss || fault == Fault::crash || fault == Fault::host_crash || fault == Fault::restart ||
         fault == Fault::clock_drift || fault == Fault::mass_restart;
}

}  // namespace

Chaos::Chaos(MembershipWorld& world, const FaultSet& permitted, std::uint32_t nodes, Rng rng, Instant until)
    : world_(world), nodes_(nodes), rng_(rng), until_(until) {
  draw(permitted);
}

void Chaos::draw(const FaultSet& permitted) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    const std::uint64_t die = rng_.below(12);
    bool on = permitted.has(fault);
    if (permitted.is_all()) {
      if (nodes_ > kFewNodes)
        on = for_many(fault) && (fault == Fault::mass_restart ? die < 2 : fault == Fault::clock_drift ? die < 6 : true);
      else on = fault == Fault::mass_restart || fault == Fault::stall_third ? die < 1 : die < 4;
    }
    active_.set(fault, on);
  }
}

void Chaos::begin() {
  const Duration busy = until_ - world_.now();
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (!active_.has(fault)) continue;
    mean_[i] = busy > kLongRun ? kLongMean : std::max<Duration>(busy / between(2s, 8s).count() * Duration(1s).count(), 2s);
    if (starts_once(fault)) lasting(fault);
    else next(fault);
  }
}

void Chaos::next(Fault fault) {
  world_.after(upto(2 * mean_[static_cast<std::size_t>(fault)]), [this, fault] {
    if (over_) return;
    strike(fault);
    next(fault);
  });
}

void Chaos::for_a_while(Duration longest, std::function<void()> undo) {
  world_.after(upto(longest), [this, key = undo_.add(std::move(undo))] { undo_.undo(key); });
}

void Chaos::heal() {
  over_ = true;
  undo_.undo_all();
  world_.resume_all();
  world_.network().set_loss(0);
  world_.network().set_duplicates(0);
  for (const std::uint32_t slot : impostors_) world_.kill(slot);
  for (const std::uint32_t slot : coming_back_)
    if (!world_.truth(slot).runs) world_.start(slot);
}

std::optional<std::uint32_t> Chaos::someone() {
  for (int tries = 0; tries < 64; ++tries) {
    const auto slot = static_cast<std::uint32_t>(rng_.below(world_.slots()));
    const Truth& truth = world_.truth(slot);
    if (truth.cluster == 0 && truth.fit(world_.now())) return slot;
  }
  return std::nullopt;
}

std::vector<std::uint32_t> Chaos::several(std::uint32_t most) {
  std::vector<std::uint32_t> chosen;
  for (std::uint64_t i = rng_.below(most) + 1; i > 0; --i)
    if (const auto slot = someone(); slot && std::find(chosen.begin(), chosen.end(), *slot) == chosen.end()) chosen.push_back(*slot);
  return chosen;
}

// For those who know nobody: their operator names hosts that answer. The seeds of old may be gone for ever.
std::vector<std::string> Chaos::seeds() {
  std::vector<std::string> names = {"h0", "h1", "h2"};
  for (const std::uint32_t seed : several(kNewSeeds)) names.push_back("h" + std::to_string(seed));
  return names;
}

// With another address too, who lost its data directory would be a stranger who wants a name that is taken:
// refused, rightly.
bool Chaos::address_known(std::uint32_t slot) const {
  const wire::Identity& identity = world_.truth(slot).identity;
  for (std::uint32_t other = 0; other < world_.slots(); ++other) {
    const auto row = world_.seen(other, identity.id);
    if (row && row->identity->address != identity.address) return false;
  }
  return true;
}

bool Chaos::may_lose_one() const { return (lost_ + 1) * 5 <= nodes_ && world_.running(0) * 4 > nodes_ * 3; }

void Chaos::come_back(std::uint32_t slot, Duration after) {
  coming_back_.push_back(slot);
  world_.after(after, [this, slot] {
    const auto at = std::find(coming_back_.begin(), coming_back_.end(), slot);
    if (at == coming_back_.end() || over_) return;
    coming_back_.erase(at);
    world_.start(slot);
  });
}

void Chaos::restart(std::uint32_t slot, Duration back_after) {
  world_.kill(slot);
  come_back(slot, back_after);
}

void Chaos::strike(Fault fault) {
  const auto chosen = someone();
  if (!chosen) return;
  const std::uint32_t slot = *chosen;
  SimMember& member = world_.member(slot);
  const Duration soon = rng_.chance(1, 2) ? between(100ms, 3s) : between(1s, 25s);
  switch (fault) {
    case Fault::crash:
    case Fault::host_crash:
      if (!may_lose_one()) return;
      ++lost_;
      fault == Fault::crash ? world_.kill(slot) : world_.vanish(slot);
      return;
    case Fault::restart: return restart(slot, soon);
    case Fault::stop: world_.stop(slot); return come_back(slot, soon + 1s);
    case Fault::reboot:
      world_.vanish(slot);
      ++member.boot;
      member.clock.boot(world_.now(), 5s);
      return come_back(slot, soon + 1s);
    case Fault::address_change:
      world_.kill(slot);
      world_.move(slot, world_.fresh_address());
      return come_back(slot, soon);
    case Fault::lost_disk:
      // Somebody has to keep the cluster: one whose members all lost their data directories is no cluster any
      // more.
      if (const auto keeper = someone(); !keeper || *keeper == slot || !address_known(slot)) return;
      world_.kill(slot);
      member.disk = SimDisk{{rng_.next(), rng_.next()}, 0, {}, false};
      member.seeds = seeds();
      return come_back(slot, soon);
    case Fault::old_disk:
      if (member.old_disk.id != member.disk.id) {
        member.old_disk = member.disk;
        return;
      }
      world_.kill(slot);
      member.disk = member.old_disk;
      return come_back(slot, soon);
    case Fault::copied_disk:
    case Fault::name_conflict: return impostor(fault);
    case Fault::pause: return world_.pause(slot, rng_.chance(1, 2) ? between(100ms, 5s) : between(5s, 25s));
    case Fault::partition: {
      std::vector<std::uint32_t> away;
      const std::uint64_t share = rng_.below(50) + 1;
      for (std::uint32_t one = 0; one < world_.slots(); ++one)
        if (rng_.below(100) < share) away.push_back(one);
      return partition(away, {}, 40s);
    }
    case Fault::isolate: return partition({slot}, {slot}, 25s);
    case Fault::one_way: {
      const bool mute = rng_.chance(1, 2);
      const auto chosen_ones = several(std::max(1u, nodes_ / 20));
      const auto set = [mute, chosen_ones](Cuts& cuts, bool on) {
        for (const std::uint32_t one : chosen_ones) mute ? cuts.mute(one, on) : cuts.deaf(one, on);
      };
      return cut(30s, false, set, chosen_ones);
    }
    case Fault::flip_flop:
      if (const auto other = someone(); other && *other != slot) {
        world_.cut_begins();
        flip_flop(slot, *other, static_cast<std::uint32_t>(2 * rng_.below(6) + 1));
      }
      return;
    case Fault::leave:
      if (!may_lose_one()) return;
      ++lost_;
      return world_.leave(slot);
    case Fault::churn: return churn();
    default: return;
  }
}

void Chaos::cut(Duration longest, bool parts, std::function<void(Cuts&, bool)> set, std::vector<std::uint32_t> unwell) {
  for (const std::uint32_t slot : unwell) world_.trouble(slot, true);
  world_.cut_begins();
  world_.note("cut of " + std::to_string(unwell.size()) + " members begins");
  set(world_.network().cuts(), true);
  for_a_while(longest, [this, parts, set, unwell] {
    set(world_.network().cuts(), false);
    world_.note("cut of " + std::to_string(unwell.size()) + " members ends");
    for (const std::uint32_t slot : unwell) world_.trouble(slot, false);
    world_.cut_ends(parts);
  });
}

void Chaos::partition(std::vector<std::uint32_t> away, std::vector<std::uint32_t> unwell, Duration longest) {
  unsigned which = 0;
  while (which < Cuts::kPartitions && (partitions_ >> which & 1) != 0) ++which;
  if (which == Cuts::kPartitions) return;
  partitions_ |= 1u << which;
  ++world_.figures().partitions;
  cut(
      longest, true,
      [this, away, which](Cuts& cuts, bool on) {
        for (const std::uint32_t slot : away) cuts.part(slot, which, on);
        if (!on) partitions_ &= ~(1u << which);
      },
      unwell);
}

void Chaos::flip_flop(std::uint32_t a, std::uint32_t b, std::uint32_t times) {
  world_.network().cuts().pair(a, b, times % 2 == 1);
  if (times == 0 || over_) {
    world_.network().cuts().pair(a, b, false);
    world_.cut_ends(false);
    return;
  }
  for_a_while(4s, [this, a, b, times] { flip_flop(a, b, times - 1); });
}

void Chaos::impostor(Fault fault) {
  const auto victim = someone();
  if (!victim) return;
  const std::uint32_t original = *victim;
  const std::uint32_t slot = world_.add_member(0, world_.member(original).name, world_.member(original).seeds);
  SimMember& copy = world_.member(slot);
  copy.truth.impostor = true;
  const bool whole_disk = fault == Fault::copied_disk;
  if (whole_disk) {
    copy.disk = world_.member(original).disk;
    copy.disk.founds = false;
    world_.trouble(original, true);
  }
  impostors_.push_back(slot);
  world_.start(slot);
  for_a_while(20s, [this, slot, original, whole_disk] {
    world_.kill(slot);
    if (whole_disk) world_.trouble(original, false);
  });
}

void Chaos::stall(std::uint32_t slot) {
  if (over_) return;
  world_.pause(slot, kStallStopped);
  world_.after(kStallStopped + kStallRuns, [this, slot] { stall(slot); });
}

void Chaos::mass_restart() {
  const std::uint64_t share = nodes_ > kMassOfAll ? kMassPercent : rng_.chance(1, 2) ? 100 : 50 + rng_.below(50);
  const Duration within = between(100ms, 8s);
  const std::uint32_t slots = world_.slots();
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const Truth& truth = world_.truth(slot);
    if (truth.cluster != 0 || !truth.runs || truth.impostor || truth.leaving || rng_.below(100) >= share) continue;
    restart(slot, within + upto(4s));
  }
}

void Chaos::other_cluster() {
  const std::uint32_t first = world_.slots(), count = 3 + static_cast<std::uint32_t>(rng_.below(3));
  for (std::uint32_t i = 0; i < count; ++i) {
    // Its seeds name a host of the first cluster too: that must refuse it.
    const std::uint32_t slot =
        world_.add_member(1, "o" + std::to_string(i), {"h" + std::to_string(first), "h" + std::to_string(first + 1), "h0"});
    others_.push_back(slot);
    world_.member(slot).disk.founds = i == 0;
    world_.start(slot);
  }
  // One of its agents comes back at an address that the first cluster remembers.
  const auto take_over = [this](auto&& again) -> void {
    world_.after(between(2s, 15s), [this, again] {
      if (over_) return;
      const std::uint32_t other = others_[rng_.below(others_.size())];
      for (std::uint32_t slot = 0; slot < world_.slots(); ++slot) {
        const Truth& truth = world_.truth(slot);
        const bool comes_back = std::find(coming_back_.begin(), coming_back_.end(), slot) != coming_back_.end();
        if (truth.cluster != 0 || truth.runs || comes_back || !rng_.chance(1, 2)) continue;
        const std::uint32_t address = world_.network().address(slot);
        if (world_.network().slot_at(address) != slot) continue;
        world_.kill(other);
        world_.move(other, address);
        come_back(other, 1s);
        break;
      }
      again(again);
    });
  };
  take_over(take_over);
}

// Keeps the size about the same: a new member comes, or one goes.
void Chaos::churn() {
  if (world_.running(0) < nodes_) {
    world_.start(world_.add_member(0, "c" + std::to_string(names_++), seeds()));
    return;
  }
  const auto slot = someone();
  if (!slot || *slot < 3) return;  // the seeds stay
  if (rng_.chance(1, 3)) world_.leave(*slot);
  else if (rng_.chance(1, 2)) world_.kill(*slot);
  else world_.vanish(*slot);
}

void Chaos::lasting(Fault fault) {
  switch (fault) {
    case Fault::loss:
      return world_.network().set_loss(nodes_ > kFewNodes ? kLossOfMany : kLossPerMille[rng_.below(std::size(kLossPerMille))]);
    case Fault::duplicate: return world_.network().set_duplicates(10);
    case Fault::clock_drift:
      for (std::uint32_t slot = 0; slot < world_.slots(); ++slot)
        world_.member(slot).clock.drift(
            world_.now(), static_cast<std::int32_t>(rng_.below(2 * kDriftPerMillion + 1)) - static_cast<std::int32_t>(kDriftPerMillion));
      return;
    case Fault::stall_third:
      for (std::uint32_t slot = 0; slot < world_.slots(); ++slot)
        if (rng_.chance(1, 3)) world_.after(upto(kStallStopped), [this, slot] { stall(slot); });
      return;
    case Fault::mass_restart:
      return world_.after(upto(std::max<Duration>((until_ - world_.now()) * 2 / 3, 1s)), [this] {
        if (!over_) mass_restart();
      });
    case Fault::other_cluster: return other_cluster();
    default: return;
  }
}

}  // namespace dtrain::sim::membership
