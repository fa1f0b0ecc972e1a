#include "tests/sim/upgrades.h"

#include <algorithm>
#include <string>

#include "common/wire/since.h"
#include "tests/sim/cluster_world.h"

namespace dtrain::sim {
namespace {

constexpr Duration kDown = 4s, kOldFor = 30s, kLeast = 30ms;
constexpr std::uint64_t kRolledBackOneIn = 3;

}  // namespace

Upgrades::Upgrades(ClusterWorld& world, Rng rng, Instant until) : world_(world), rng_(rng), until_(until) {}

Duration Upgrades::upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())))); }

void Upgrades::begin() {
  const Duration time = std::max<Duration>(until_ - world_.now(), 1s);
  for (std::size_t i = 0; i < world_.hosts(); ++i) {
    // Within the first half of the time, so that the newer version has much to do, too.
    world_.timeline().after(upto(time / 2), [this, i] {
      give(i, true);
      if (rng_.chance(1, kRolledBackOneIn)) roll_back_later(i);
    });
  }
}

void Upgrades::roll_back_later(std::size_t host) {
  world_.timeline().after(upto(std::max<Duration>(until_ - world_.now(), 1s)), [this, host] {
    if (world_.now() >= until_) return;
    give(host, false);
    world_.timeline().at(std::min(until_, world_.now() + kLeast + upto(kOldFor)), [this, host] { give(host, true); });
  });
}

void Upgrades::give(std::size_t host, bool newer) {
  const std::uint32_t knows = newer ? wire::kRehearsal.version : cluster::kNewestVersion;
  if (world_.host(host).knows() == knows) return;
  world_.note(host, newer ? "upgrade" : "an older program");
  world_.host(host).kill_agent(kLeast + upto(kDown));
  world_.host(host).set_knows(knows);
}

void Upgrades::finish() {
  for (std::size_t i = 0; i < world_.hosts(); ++i) give(i, true);
}

}  // namespace dtrain::sim
