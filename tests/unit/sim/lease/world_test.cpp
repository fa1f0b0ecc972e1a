// World lease as a whole: seeds hold and repeat themselves, faults occur, broken rules are found.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/sim/lease/run.h"

namespace dtrain::sim::lease {
namespace {

#ifdef DTRAIN_SANITIZED  // each run takes some thirty times as long there
constexpr std::uint64_t kSeeds = 20;
#else
constexpr std::uint64_t kSeeds = 300;
#endif

RunOptions options(std::uint32_t nodes, std::string_view faults, std::string rule = "") {
  RunOptions options;
  options.nodes = nodes;
  options.faults = *FaultSet::parse(faults);
  options.broken_rule = std::move(rule);
  return options;
}

TEST(LeaseWorld, SeedsHoldForEverySize) {
  for (const std::uint32_t nodes : {1u, 2u, 3u, 5u, 8u}) {
    const Report report = run_seeds(options(nodes, "all"), {1, kSeeds});
    EXPECT_FALSE(report.violation) << nodes << " hosts, " << broken_text(report);
    EXPECT_GT(report.compared, 0u);
    EXPECT_GT(report.figures.freezes, 0u);
    EXPECT_GT(report.figures.thaws, 0u);
  }
}

TEST(LeaseWorld, EveryFaultHoldsAlone) {
  for (const std::string& fault : FaultSet::all_names()) {
    const Report report = run_seeds(options(3, fault), {1, kSeeds / 10});
    EXPECT_FALSE(report.violation) << fault << ", " << broken_text(report);
  }
}

TEST(LeaseWorld, WhatIsToBeTriedOccurs) {
  const Report report = run_seeds(options(3, "all"), {1, 10 * kSeeds});
  ASSERT_FALSE(report.violation) << broken_text(report);
  const Figures& figures = report.figures;
  for (const std::uint64_t count : {figures.by_lease, figures.by_grace, figures.by_exit, figures.by_boot, figures.guard_freezes,
                                    figures.unfenced, figures.superseded, figures.excused, figures.refused})
    EXPECT_GT(count, kSeeds / 30) << figures.json().dump();
  const Report calm = run_seeds(options(3, "none"), {1, kSeeds / 10});
  ASSERT_FALSE(calm.violation) << broken_text(calm);
  EXPECT_EQ(calm.figures.kills, 0u);  // nothing is ended that is well
}

#ifndef DTRAIN_SANITIZED
TEST(LeaseWorld, EveryRuleIsMissed) {
  for (const std::string& rule : rules()) {
    RunOptions broken = options(3, "all", rule);
    broken.duration = 200s;  // busy for most of it
    EXPECT_TRUE(run_seeds(broken, {1, 5'000}).violation) << rule;
  }
}
#endif

TEST(LeaseWorld, AFailureSaysHowToRepeatIt) {
  const RunOptions broken = options(3, "partition,one-way", "count-from-election");
  EXPECT_EQ(replay_command(broken, 7),
            "dtrain-sim --world lease --nodes 3 --seeds 7..7 --duration 80000ms --faults partition,one-way "
            "--break count-from-election");
  const Report first = run_seeds(broken, {1, 500});
  ASSERT_TRUE(first.violation);
  const Report again = run_seeds(broken, {first.failed_seed, first.failed_seed});
  ASSERT_TRUE(again.violation);
  EXPECT_EQ(again.violation->what, first.violation->what);
  EXPECT_EQ(again.violation->at, first.violation->at);
}

TEST(LeaseWorld, RefusesWhatMakesNoSense) {
  RunRequest request;
  request.seeds = {1, 1};
  request.nodes = 9;
  EXPECT_FALSE(lease_world().run(request));
  request.nodes = 3;
  request.faults = "rain";
  EXPECT_FALSE(lease_world().run(request));
  request.faults = "none";
  const auto outcome = lease_world().run(request);
  ASSERT_TRUE(outcome);
  EXPECT_NE(outcome->figures.find("\"unfenced\":0"), std::string::npos) << outcome->figures;
}

}  // namespace
}  // namespace dtrain::sim::lease
