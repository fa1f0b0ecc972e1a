// World formation as a whole: seeds hold and repeat themselves, broken rules are found.
#include <gtest/gtest.h>

#include "tests/sim/formation/run.h"

namespace dtrain::sim::formation {
namespace {

RunOptions options(std::uint32_t nodes, std::string_view faults, std::string rule = "") {
  RunOptions options;
  options.nodes = nodes;
  options.faults = *FaultSet::parse(faults);
  options.broken_rule = std::move(rule);
  return options;
}

#ifdef DTRAIN_SANITIZED  // a run takes thirty times as long there
constexpr std::uint64_t kSeeds = 5;
#else
constexpr std::uint64_t kSeeds = 40;
#endif

TEST(FormationWorld, SeedsHoldForEverySize) {
  for (const std::uint32_t nodes : {1u, 2u, 3u, 4u, 5u, 10u, 16u}) {
    const Report report = run_seeds(options(nodes, "all"), {1, kSeeds});
    EXPECT_FALSE(report.violation) << nodes << " nodes, " << broken_text(report);
    EXPECT_GE(report.compared, 1u);
    EXPECT_GE(report.figures.began, kSeeds);
  }
}

#ifndef DTRAIN_SANITIZED
TEST(FormationWorld, EveryFaultOccursAndHoldsAlone) {
  for (const std::string& fault : FaultSet::all_names()) {
    const Report report = run_seeds(options(3, fault), {1, 20});
    EXPECT_FALSE(report.violation) << fault << ", " << broken_text(report);
  }
  EXPECT_GT(run_seeds(options(3, "lost-disk"), {1, 40}).figures.wiped, 0u);
  EXPECT_GT(run_seeds(options(3, "lost-disk"), {1, 40}).figures.admitted, 0u);
  EXPECT_GT(run_seeds(options(3, "disk-error"), {1, 20}).figures.disk_errors, 0u);
  EXPECT_GT(run_seeds(options(3, "without,late-start"), {1, 20}).figures.without, 0u);
}

TEST(FormationWorld, EveryRuleIsMissed) {
  for (const std::string& rule : core::Rules::names()) {
    bool found = false;
    for (const std::uint32_t nodes : {3u, 5u}) found = found || run_seeds(options(nodes, "all", rule), {1, 2000}).violation.has_value();
    EXPECT_TRUE(found) << rule;
  }
}
#endif

TEST(FormationWorld, AFailureSaysHowToRepeatIt) {
  const RunOptions broken = options(3, "crash,loss", "all-promised");
  EXPECT_EQ(replay_command(broken, 7),
            "dtrain-sim --world formation --nodes 3 --seeds 7..7 --duration 60000ms --faults loss,crash "
            "--break all-promised");
  const Report first = run_seeds(broken, {1, 50});
  ASSERT_TRUE(first.violation);
  const Report again = run_seeds(broken, {first.failed_seed, first.failed_seed});
  ASSERT_TRUE(again.violation);
  EXPECT_EQ(again.violation->what, first.violation->what);
  EXPECT_EQ(again.violation->at, first.violation->at);
}

TEST(FormationWorld, RefusesWhatMakesNoSense) {
  RunRequest request;
  request.seeds = {1, 1};
  request.nodes = 17;
  EXPECT_FALSE(formation_world().run(request));
  request.nodes = 3;
  request.faults = "rain";
  EXPECT_FALSE(formation_world().run(request));
  request.faults = "none";
  const auto outcome = formation_world().run(request);
  ASSERT_TRUE(outcome);
  EXPECT_NE(outcome->figures.find("\"began\":3"), std::string::npos) << outcome->figures;
}

}  // namespace
}  // namespace dtrain::sim::formation
