// A hundred and more agents that share two processors, as on the machine that measures them.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/membership/membership_world.h"

namespace dtrain::sim::membership {
namespace {

#ifdef DTRAIN_SANITIZED  // a run takes thirty times as long there
constexpr std::uint32_t kNodes = 32;
#else
constexpr std::uint32_t kNodes = 128;
#endif

class Crowded : public testing::Test {
 protected:
  Crowded() : world_(options()) {
    world_.begin_joining();
    pass(20s);
  }
  static RunOptions options() {
    RunOptions options;
    options.nodes = kNodes;
    options.processors = 2;
    return options;
  }
  void pass(Duration length) { world_.run_until(world_.now() + length); }
  std::uint32_t fewest_alive() {
    std::uint32_t least = kNodes;
    for (std::uint32_t slot = 0; slot < kNodes; ++slot)
      least = std::min(least, world_.member(slot).core->counts().alive);
    return least;
  }
  // How long until all see all; kNever: longer than that.
  Duration whole_after(Duration most) {
    const Instant begin = world_.now();
    while (world_.now() - begin < most) {
      if (fewest_alive() == kNodes) return world_.now() - begin;
      pass(50ms);
    }
    return Duration::max();
  }
  void cut_in_halves(bool cut) {
    for (std::uint32_t slot = 0; slot < kNodes; slot += 2) world_.network().cuts().part(slot, 0, cut);
  }

  MembershipWorld world_;
};

TEST_F(Crowded, HalvesMergeWithinSeconds) {
  ASSERT_EQ(fewest_alive(), kNodes);
  cut_in_halves(true);
  world_.cut_begins();
  pass(120s);
  EXPECT_EQ(fewest_alive(), kNodes / 2);
  cut_in_halves(false);
  world_.cut_ends(true);
  EXPECT_LE(whole_after(60s), 5s);
}

}  // namespace
}  // namespace dtrain::sim::membership
