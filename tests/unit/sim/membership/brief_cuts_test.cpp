// A host that nobody reached for some seconds and that is back before the last question (suspicion_min after it fell silent) can
// answer it: what TCP lost on the way it says again only at 0.2, 0.6, 1.4 and 3.0 s, and at 5.2 s it begins anew: that may be too late.
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/membership/membership_world.h"

namespace dtrain::sim::membership {
namespace {

#ifdef DTRAIN_SANITIZED
constexpr std::uint64_t kBriefSeeds = 2;
#else
constexpr std::uint64_t kBriefSeeds = 60;
#endif

enum class Cut { whole, mute, deaf };

// The first member that another declares dead after one was cut off for so long; empty: none.
std::string dead_after(Cut kind, Duration cut, std::uint64_t seed, std::uint32_t nodes) {
  RunOptions options;
  options.seed = seed;
  options.nodes = nodes;
  MembershipWorld world(options);
  const auto pass = [&](Duration length) { world.run_until(world.now() + length); };
  world.begin_joining();
  pass(20s + seed % 40 * 50ms);
  const auto away = static_cast<std::uint32_t>(seed % nodes);
  Cuts& cuts = world.network().cuts();
  const auto set = [&](bool on) {
    if (kind == Cut::whole) cuts.part(away, 0, on);
    if (kind == Cut::mute) cuts.mute(away, on);
    if (kind == Cut::deaf) cuts.deaf(away, on);
  };
  world.trouble(away, true);
  world.cut_begins();
  set(true);
  pass(cut);
  set(false);
  std::string dead;
  for (const Instant end = world.now() + 10s; world.now() < end && dead.empty(); pass(10ms))
    for (std::uint32_t by = 0; by < nodes; ++by)
      for (std::uint32_t of = 0; of < nodes; ++of)
        if (const auto seen = world.seen(by, world.truth(of).identity.id); seen && seen->state == wire::MemberState::dead)
          dead = world.member(by).name + " says that " + world.member(of).name + " is dead";
  if (world.broken()) ADD_FAILURE() << "seed " << seed << ": " << world.broken()->invariant << ": " << world.broken()->what;
  return dead;
}

TEST(BriefCuts, KillNobody) {
  const gossip::MembershipOptions options;
  for (const Cut kind : {Cut::whole, Cut::mute, Cut::deaf})
    for (const std::uint32_t nodes : {2u, 3u, 5u, 12u})
      for (const Duration cut : {Duration(2s), Duration(4s), options.suspicion_min - 100ms})
        for (std::uint64_t seed = 1; seed <= kBriefSeeds; ++seed)
          EXPECT_EQ(dead_after(kind, cut, seed, nodes), "")
              << "cut " << static_cast<int>(kind) << " of " << cut / 1ms << " ms, " << nodes << " members, seed " << seed;
}

// That the world shows it: a longer one does.
TEST(BriefCuts, LongOnesDo) { EXPECT_NE(dead_after(Cut::whole, 8s, 1, 5), ""); }

}  // namespace
}  // namespace dtrain::sim::membership
