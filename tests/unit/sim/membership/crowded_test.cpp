// A hundred and more agents that share two processors, as on the machine that measures them: what they do
// about each other must not take the time in which they answer each other.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/membership/membership_world.h"

namespace dtrain::sim::membership {
namespace {

#ifdef DTRAIN_SANITIZED  // a run takes thirty times as long there
constexpr std::uint32_t kNodes = 32;
constexpr std::uint64_t kCrowdedSeeds = 1;
#else
constexpr std::uint32_t kNodes = 128;
constexpr std::uint64_t kCrowdedSeeds = 3;
#endif

class Crowd {
 public:
  explicit Crowd(std::uint64_t seed, const std::string& broken_rule = {}) : world_(options(seed, broken_rule)) {
    world_.begin_joining();
    pass(20s);
  }
  ~Crowd() {
    if (world_.broken()) ADD_FAILURE() << world_.broken()->invariant << ": " << world_.broken()->what;
  }
  void pass(Duration length) { world_.run_until(world_.now() + length); }
  std::uint32_t fewest_alive() {
    std::uint32_t least = kNodes;
    for (std::uint32_t slot = 0; slot < kNodes; ++slot) least = std::min(least, world_.member(slot).core->counts().alive);
    return least;
  }
  // How long until all see all; Duration::max(): longer than that.
  Duration whole_after(Duration most) {
    const Instant begin = world_.now();
    while (world_.now() - begin < most && !world_.broken()) {
      if (fewest_alive() == kNodes) return world_.now() - begin;
      pass(50ms);
    }
    return Duration::max();
  }
  void cut_in_halves(bool cut) {
    for (std::uint32_t slot = 0; slot < kNodes; slot += 2) world_.network().cuts().part(slot, 0, cut);
    if (cut) world_.cut_begins();
    else world_.cut_ends(true);
  }
  MembershipWorld& operator*() { return world_; }

 private:
  static RunOptions options(std::uint64_t seed, const std::string& broken_rule) {
    RunOptions options;
    options.seed = seed;
    options.nodes = kNodes;
    options.processors = 2;
    options.broken_rule = broken_rule;
    return options;
  }
  MembershipWorld world_;
};

TEST(Crowded, HalvesMergeWithinSeconds) {
  for (std::uint64_t seed = 1; seed <= kCrowdedSeeds; ++seed) {
    Crowd crowd(seed);
    ASSERT_EQ(crowd.fewest_alive(), kNodes);
    crowd.cut_in_halves(true);
    crowd.pass(120s);
    EXPECT_EQ(crowd.fewest_alive(), kNodes / 2);
    crowd.cut_in_halves(false);
    EXPECT_LE(crowd.whole_after(60s), 10s) << "seed " << seed;  // at twice the cost of its work
    crowd.pass(30s);
    EXPECT_EQ(crowd.fewest_alive(), kNodes) << "seed " << seed;
  }
}

TEST(Crowded, LossDeclaresNobody) {
  Crowd crowd(1);
  (*crowd).network().set_loss(250);
  crowd.pass(100s);
  for (std::uint32_t slot = 0; slot < kNodes; ++slot) EXPECT_EQ((*crowd).member(slot).core->counts().dead, 0u) << slot;
  (*crowd).network().set_loss(0);
  EXPECT_LE(crowd.whole_after(60s), 30s);
}

#ifndef DTRAIN_SANITIZED  // so few have time enough
TEST(Crowded, WhoDoesNotCountItsLagIsNeverDone) {
  Crowd crowd(1, "lag-counts");
  EXPECT_EQ(crowd.whole_after(20s), Duration::max());
}
#endif

}  // namespace
}  // namespace dtrain::sim::membership
