#include "tests/sim/formation/chaos.h"

namespace dtrain::sim::formation {
namespace {

constexpr std::uint32_t kLossPerMille[] = {10, 100, 300};
constexpr std::uint32_t kDuplicatesPerMille = 100;

}  // namespace

Chaos::Chaos(FormationWorld& world, const FaultSet& permitted, Rng rng, Instant until) : world_(world), rng_(rng), until_(until) {
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    active_.set(fault, permitted.has(fault) && (rng_.chance(2, 5) || !permitted.is_all()));
  }
  if (!permitted.is_all()) return;
  // One or the other: what an operator is told wrong nobody could notice once a disk is lost
  // (docs/simulator.md).
  const bool without = rng_.chance(1, 2);
  active_.set(Fault::without, without);
  active_.set(Fault::lost_disk, !without);
}

// Most of what can go wrong in forming goes wrong in a fraction of a second: crashes and the like come that
// often, in some runs.
void Chaos::begin() {
  constexpr Duration kPaces[] = {150ms, 500ms, 3s};
  const Duration pace = kPaces[rng_.below(std::size(kPaces))];
  for (Slot slot = 0; slot < world_.slots(); ++slot)
    come_back(slot, active_.has(Fault::late_start) ? upto(rng_.chance(1, 4) ? 30s : 3s) : upto(50ms));
  if (active_.has(Fault::loss)) world_.links().set_loss(kLossPerMille[rng_.below(std::size(kLossPerMille))]);
  if (active_.has(Fault::duplicate)) world_.links().set_duplicates(kDuplicatesPerMille);
  if (active_.has(Fault::delay)) world_.links().set_delays(true);
  world_.set_ghosts(active_.has(Fault::ghost));
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    mean_[i] = pace / 2 + upto(pace);
    if (active_.has(fault) && fault > Fault::ghost) next(fault);
  }
}

void Chaos::next(Fault fault) {
  world_.after(upto(2 * mean_[static_cast<std::size_t>(fault)]), [this, fault] {
    if (over_ || world_.now() >= until_) return;
    strike(fault);
    next(fault);
  });
}

void Chaos::strike(Fault fault) {
  const Slot slot = someone();
  switch (fault) {
    case Fault::crash: world_.kill(slot); return come_back(slot, upto(rng_.chance(1, 3) ? 8s : 300ms));
    case Fault::partition: return partition();
    case Fault::isolate: return isolate();
    case Fault::one_way: return one_way();
    case Fault::slow_disk: return world_.slow_disk(slot, upto(1s));
    case Fault::disk_error:
      world_.fail_disk(slot);
      return world_.after(upto(5s), [this, slot] {
        if (over_ || !world_.disk_failed(slot)) return;
        world_.kill(slot);
        world_.start(slot);
      });
    case Fault::lost_disk:
      if (!world_.may_wipe(slot)) return;
      world_.kill(slot);
      if (world_.may_wipe(slot)) world_.wipe(slot);
      return come_back(slot, upto(2s));
    case Fault::without: return world_.form_without_the_missing(slot);
    default: return;
  }
}

void Chaos::come_back(Slot slot, Duration after) {
  world_.after(after, [this, slot] {
    if (!over_) world_.start(slot);
  });
}

void Chaos::cut_for(std::vector<std::pair<Slot, Slot>> links, Duration longest) {
  for (const auto& [from, to] : links) world_.cut(from, to, true);
  world_.note("cut of " + std::to_string(links.size()) + " links");
  const auto key = undo_.add([this, links] {
    for (const auto& [from, to] : links) world_.cut(from, to, false);
  });
  world_.after(upto(longest), [this, key] { undo_.undo(key); });
}

void Chaos::partition() { cut_for(council::links_across(rng_.next(), world_.slots()), 8s); }

void Chaos::isolate() { cut_for(council::links_of(someone(), world_.slots()), 8s); }

void Chaos::one_way() {
  const Slot one = someone();
  std::vector<std::pair<Slot, Slot>> links;
  for (Slot other = 0; other < world_.slots(); ++other)
    if (other != one && !rng_.chance(1, 3)) links.emplace_back(one, other);
  cut_for(std::move(links), 5s);
}

void Chaos::heal() {
  over_ = true;
  undo_.undo_all();
  world_.links().heal();
  world_.set_ghosts(false);
  for (Slot slot = 0; slot < world_.slots(); ++slot) {
    if (world_.disk_failed(slot)) world_.kill(slot);
    world_.heal_disk(slot);
    world_.start(slot);
  }
}

}  // namespace dtrain::sim::formation
