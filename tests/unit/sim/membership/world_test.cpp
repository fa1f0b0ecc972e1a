// World membership as a whole: options, determinism, that it holds, and that broken rules are noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "common/gossip/rules.h"
#include "tests/sim/membership/run.h"

namespace dtrain::sim::membership {
namespace {

TEST(Faults, AreReadAndWrittenByName) {
  EXPECT_EQ(FaultSet::parse("all")->text(), "all");
  EXPECT_EQ(FaultSet::parse("none")->text(), "none");
  EXPECT_EQ(FaultSet::parse("stall-third,loss")->text(), "loss,stall-third");
  std::set<std::string_view> names;
  for (const auto name : fault_names(Fault{})) names.insert(name);
  EXPECT_EQ(names.size(), kFaults);
  EXPECT_EQ(to_string(Fault::other_cluster), "other-cluster");
  const auto wrong = FaultSet::parse("loss,meteor");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text().find("flip-flop"), std::string::npos);
}

TEST(World, TheSameSeedTakesTheSameCourse) {
  RunOptions options;
  options.nodes = 12;
  options.seed = 42;
  const RunResult one = MembershipWorld(options).run(), two = MembershipWorld(options).run();
  EXPECT_EQ(one.trace_hash, two.trace_hash);
  EXPECT_EQ(one.events, two.events);
  EXPECT_EQ(one.figures.json(), two.figures.json());
  options.seed = 43;
  EXPECT_NE(MembershipWorld(options).run().trace_hash, one.trace_hash);
}

// Under a sanitizer a run takes some twenty times as long, and is there for its memory errors.
#ifdef DTRAIN_SANITIZED
constexpr std::uint64_t kSeeds = 8;
constexpr std::uint64_t kMeasuredSeeds = 5;
constexpr const char* kPreloadedFaults = "loss,crash";
constexpr Duration kPreloadedDuration = 10s;
#else
constexpr std::uint64_t kSeeds = 30;
constexpr std::uint64_t kMeasuredSeeds = 8;
constexpr const char* kPreloadedFaults = "all";
constexpr Duration kPreloadedDuration = 90s;
#endif

void expect_holds(std::uint32_t nodes, const char* faults, SeedRange seeds, Duration duration = 90s) {
  RunOptions options;
  options.nodes = nodes;
  options.duration = duration;
  options.faults = *FaultSet::parse(faults);
  const Report report = run_seeds(options, seeds);
  EXPECT_FALSE(report.violation) << replay_command(options, report.failed_seed) << "\nbroke " << report.violation->invariant << ": "
                                 << report.violation->what;
  EXPECT_EQ(report.seeds, seeds.last - seeds.first + 1);
  EXPECT_GE(report.compared, 1u);
  EXPECT_EQ(report.figures.false_positives, 0u);
  EXPECT_EQ(report.figures.messages > 0, nodes > 1);
  EXPECT_EQ(report.figures.encoded > 0, nodes > 1);
}

TEST(World, HoldsWithoutFaults) { expect_holds(12, "none", {1, 3}); }
TEST(World, HoldsUnderAllFaults) { expect_holds(12, "all", {1, kSeeds}); }
TEST(World, HoldsWithTwoMembersAndWithOne) {
  expect_holds(1, "none", {1, 2});
  expect_holds(2, "restart,pause", {1, 5});
}
TEST(World, HoldsWithAPreloadedTable) { expect_holds(MembershipWorld::kPreloadFrom, kPreloadedFaults, {1, 1}, kPreloadedDuration); }

TEST(World, MeasuresWhatItIsAskedFor) {
  RunOptions options;
  options.nodes = 20;
  options.duration = 150s;
  options.faults = *FaultSet::parse("crash,host-crash,restart,partition");
  const Report report = run_seeds(options, {1, kMeasuredSeeds});
  ASSERT_FALSE(report.violation) << report.violation->what;
  const Figures& figures = report.figures;
  for (const Samples* samples : {&figures.gone_detect, &figures.silent_detect, &figures.gone_spread, &figures.silent_spread,
                                 &figures.fact_spread, &figures.restart, &figures.merge})
    EXPECT_GT(samples->size(), 0u);
  EXPECT_GT(figures.crashes, 0u);
  EXPECT_GT(figures.memory_bytes, 0u);
}

TEST(Replay, NamesEveryOption) {
  RunOptions options;
  options.nodes = 30;
  options.duration = 90s;
  options.broken_rule = "confirm-on-demand";
  EXPECT_EQ(replay_command(options, 9),
            "dtrain-sim --world membership --nodes 30 --seeds 9..9 --duration 90000ms --faults all --break "
            "confirm-on-demand");
}

TEST(Request, WhatMakesNoSenseIsRefused) {
  RunRequest request;
  request.nodes = MembershipWorld::kMostNodes + 1;
  EXPECT_FALSE(membership_world().run(request));
  request.nodes = 3;
  request.faults = "meteor";
  EXPECT_FALSE(membership_world().run(request));
}

// Who notices each rule when it is switched off: the simulator under these faults, or a unit test of
// common/gossip.
struct Noticed {
  const char* faults;  // nullptr: by a unit test
  std::uint32_t nodes = 12;
  const char* unit = nullptr;  // which; unset: one that breaks the rule by name
};
const std::map<std::string, Noticed> kNoticed = {
    {"alive-needs-higher-incarnation", {nullptr}},
    {"refute-goes-above-accusation", {nullptr}},
    {"restart-raises-restarted", {"restart"}},
    {"accuser-counts-once", {nullptr}},
    {"stale-timer-checked", {"isolate,pause"}},
    {"remote-dead-is-suspect", {nullptr}},
    {"probe-carries-suspicion", {nullptr}},
    {"shuffle-probes", {nullptr, 0, "TEST(Rule08ProbeOrder, SwitchedOffItGoesInOrder)"}},
    {"send-failure-is-failed-probe", {nullptr}},
    {"pong-must-match", {nullptr}},
    {"fewest-transmitted-first", {nullptr, 0, "TEST(Rule11RumourQueue, SwitchedOffTheLargestGoesAgainAndAgain)"}},
    {"random-phase", {nullptr}},
    {"retry-dead-for-ever", {nullptr}},
    {"tombstones-outlive-sync", {nullptr}},
    {"other-cluster-dropped", {"other-cluster,crash"}},
    {"tick-gap-discards-verdicts", {nullptr}},
    {"bad-health-starts-at-max", {nullptr}},
    {"freeze-without-quorum", {"partition"}},
    {"confirm-on-demand", {nullptr}},
    {"gone-needs-two", {nullptr}},
    {"lag-counts", {nullptr}},
    {"frozen-tells-suspicions", {nullptr, 0, "TEST(Halves, NotUnlessWhoIsFrozenTellsItsSuspicions)"}},
};

std::string unit_tests_of_gossip() {
  std::ostringstream text;
  for (const char* file : {"gossip/rules_of_merging_test", "gossip/rules_of_probing_test", "gossip/rumour_queue_test",
                           "gossip/probe_order_test", "gossip/suspicion_test", "gossip/lag_test", "sim/membership/halves_test"})
    text << std::ifstream(std::string(DTRAIN_SOURCE_DIR "/tests/unit/") + file + ".cpp").rdbuf();
  return text.str();
}

class BrokenRules : public testing::TestWithParam<std::string> {};

TEST_P(BrokenRules, AreNoticed) {
  const std::string& rule = GetParam();
  ASSERT_TRUE(kNoticed.contains(rule)) << "nobody is said to notice it: add it to kNoticed";
  const Noticed& noticed = kNoticed.at(rule);
  if (noticed.faults == nullptr) {
    const std::string wanted = noticed.unit != nullptr ? noticed.unit : '(' + ('"' + rule + '"') + ')';
    EXPECT_NE(unit_tests_of_gossip().find(wanted), std::string::npos) << wanted << ": no unit test of common/gossip has it";
    return;
  }
  RunOptions options;
  options.nodes = noticed.nodes;
  options.duration = 90s;
  options.faults = *FaultSet::parse(noticed.faults);
  options.broken_rule = rule;
  EXPECT_TRUE(run_seeds(options, {1, 60}).violation) << "under " << noticed.faults;
}

INSTANTIATE_TEST_SUITE_P(Membership, BrokenRules, testing::ValuesIn(gossip::Rules::names()), [](const auto& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace dtrain::sim::membership
