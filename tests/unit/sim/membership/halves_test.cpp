// Neither half of a cut is a majority: nobody is declared dead, so nobody gets new neighbours. Each misses the whole
// other half all the same, also who has no neighbour on its side.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/membership/membership_world.h"

namespace dtrain::sim::membership {
namespace {

#ifdef DTRAIN_SANITIZED
constexpr std::uint64_t kHalvesSeeds = 3;
#else
constexpr std::uint64_t kHalvesSeeds = 60;
#endif
constexpr Duration kMissed = 30s;  // a suspicion, and a few syncs of who is frozen

// Those of the other half whom somebody still calls alive, after a member has restarted shortly before the cut.
std::uint32_t still_called_alive(std::uint64_t seed, std::uint32_t nodes, const std::string& broken_rule = {}) {
  RunOptions options;
  options.seed = seed;
  options.nodes = nodes;
  options.broken_rule = broken_rule;
  MembershipWorld world(options);
  const auto pass = [&](Duration length) { world.run_until(world.now() + length); };
  world.begin_joining();
  pass(20s);
  const auto restarted = static_cast<std::uint32_t>(seed % nodes);
  world.kill(restarted);
  pass(seed % 3 * 1s + 100ms);
  world.start(restarted);
  pass(seed % 25 * 100ms);
  for (std::uint32_t slot = 0; slot < nodes; slot += 2) world.network().cuts().part(slot, 0, true);
  world.cut_begins();
  pass(kMissed);
  if (world.broken()) ADD_FAILURE() << "seed " << seed << ": " << world.broken()->invariant << ": " << world.broken()->what;
  std::uint32_t pairs = 0;
  for (std::uint32_t slot = 0; slot < nodes; ++slot) pairs += std::max(world.member(slot).core->counts().alive, nodes / 2) - nodes / 2;
  return pairs;
}

TEST(Halves, EachMissesTheWholeOther) {
  for (const std::uint32_t nodes : {6u, 12u, 20u})
    for (std::uint64_t seed = 1; seed <= kHalvesSeeds; ++seed) EXPECT_EQ(still_called_alive(seed, nodes), 0u) << "seed " << seed;
}

TEST(Halves, NotUnlessWhoIsFrozenTellsItsSuspicions) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed)
    if (still_called_alive(seed, 12, "frozen-tells-suspicions") != 0) return;
  ADD_FAILURE() << "nobody has noticed";
}

}  // namespace
}  // namespace dtrain::sim::membership
