// Hundreds of random courses of the queue, and for each of its rules that the checkers notice when it is not kept.
#include "tests/unit/cluster/queue_world.h"

namespace dtrain::cluster {
namespace {

#ifdef DTRAIN_SANITIZED
constexpr std::uint64_t kSeeds = 60;
#else
constexpr std::uint64_t kSeeds = 600;
#endif
constexpr std::uint64_t kSeedsToNotice = 600;  // one in ten to one in a hundred shows it; the first ends the search

TEST(QueueSimulation, EverySeedHolds) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) EXPECT_EQ(QueueWorld::run({seed, ""}), "") << "seed " << seed;
}

TEST(QueueSimulation, CheckersNoticeEachRuleThatIsNotKept) {
  for (const std::string& rule : BreakableRules<QueueRule>::names()) {
    std::string noticed;
    for (std::uint64_t seed = 1; seed <= kSeedsToNotice && noticed.empty(); ++seed) noticed = QueueWorld::run({seed, rule});
    EXPECT_NE(noticed, "") << rule;
  }
}

}  // namespace
}  // namespace dtrain::cluster
