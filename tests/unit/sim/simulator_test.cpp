// The simulator itself: options, determinism, and that every checker fails when a promise it watches is broken.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/job/manifest.h"
#include "tests/sim/cluster_network.h"
#include "tests/sim/job_factory.h"
#include "tests/sim/run_seeds.h"
#include "tests/sim/script.h"

namespace dtrain::sim {
namespace {

TEST(Script, SurvivesItsArgv) {
  Script s;
  s.tag = 12;
  s.run_min = 2s;
  s.run_max = 9s;
  s.ok = 70;
  s.signal = 11;
  s.hang = 5;
  s.ignore_term = true;
  s.ready = 250ms;
  s.checkpoint = 3s;
  s.rotten = 30;
  s.watches = "ps-0";
  s.leaves = 700ms;
  EXPECT_EQ(Script::parse(s.argv()).argv(), s.argv());
  EXPECT_EQ(Script::parse({"python3", "train.py", "--ps_hosts=a:1"}).argv(), Script{}.argv());
}

TEST(Faults, AreReadAndWrittenByName) {
  EXPECT_EQ(FaultSet::parse("all")->text(), "all");
  EXPECT_EQ(FaultSet::parse("none")->text(), "none");
  EXPECT_EQ(FaultSet::parse("task-kill,reboot")->text(), "task-kill,reboot");
  const auto wrong = FaultSet::parse("task-kill,meteor");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid);
  EXPECT_NE(wrong.error().text().find("clock-jump"), std::string::npos);
}

TEST(Seeds, AreARangeOrOne) {
  EXPECT_EQ(SeedRange::parse("7")->last, 7u);
  EXPECT_EQ(SeedRange::parse("3..9")->first, 3u);
  for (const char* wrong : {"", "9..3", "a..b", "1..", "1...5", "-1..4"}) EXPECT_FALSE(SeedRange::parse(wrong)) << wrong;
}

TEST(Jobs, AreValidWhateverTheSeed) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    const auto errors = job::validate(random_job("digits", seed, rng));
    EXPECT_TRUE(errors.empty()) << seed << ": " << errors.front().text();
  }
}

// Of many hosts: a job has workers for many of them, and never more than have room when nothing else runs.
TEST(Jobs, AreWideWhereThereAreManyHosts) {
  constexpr std::uint32_t kHosts = 100;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    job::JobSpec spec = random_job("digits", seed, rng);
    if (seed % 2 == 0) make_hungry(spec, kHosts);
    make_wide(spec, kHosts, rng);
    const auto errors = job::validate(spec);
    EXPECT_TRUE(errors.empty()) << seed << ": " << errors.front().text();
    EXPECT_GE(spec.roles["worker"].replicas, kHosts / 2);
    std::uint64_t cpus = 0, gpus = 0;
    for (const auto& [name, role] : spec.roles) {
      cpus += role.replicas * role.resources.cpu_millis;
      gpus += role.replicas * role.resources.gpus;
    }
    EXPECT_LE(cpus, kHosts * kHostCpuMillis) << seed;
    EXPECT_LE(gpus, kHosts * kHostGpus) << seed;
  }
}

TEST(Network, AnyHostCanBeCutOffFromAnyOther) {
  Timeline timeline;
  ClusterNetwork network(
      timeline, Rng(1), [](std::size_t, node::Event) {}, [](std::string_view, std::string) {});
  for (std::size_t i = 0; i < kMostHosts; ++i) network.add_host();
  EXPECT_EQ(ClusterNetwork::host_at(ClusterNetwork::endpoint(kMostHosts - 1)), kMostHosts - 1);
  EXPECT_GE(ClusterNetwork::host_at({"192.168.0.1", 7400}), kMostHosts);
  HostSet far;
  far.set(150).set(kMostHosts - 1);
  network.part(far, true);
  network.isolate(3, true);
  network.mute(7, true);
  EXPECT_TRUE(network.blocked(150, 7) && network.blocked(9, kMostHosts - 1) && network.blocked(3, 150) && network.blocked(8, 3));
  EXPECT_TRUE(network.blocked(7, 8));
  EXPECT_FALSE(network.blocked(8, 7) || network.blocked(150, kMostHosts - 1));
  network.part(far, false);
  network.mute(7, false);
  EXPECT_FALSE(network.blocked(150, 8) || network.blocked(7, 8));
  EXPECT_TRUE(network.blocked(3, 150));
}

TEST(World, RefusesMoreHostsThanItTakes) {
  RunRequest request;
  request.nodes = kMostHosts + 1;
  const auto outcome = cluster_world().run(request);
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().text().find("--nodes 200"), std::string::npos);
}

TEST(World, TheSameSeedTakesTheSameCourse) {
  RunOptions options;
  options.seed = 42;
  const RunResult one = ClusterWorld(options).run(), two = ClusterWorld(options).run();
  EXPECT_EQ(one.trace_hash, two.trace_hash);
  EXPECT_EQ(one.events, two.events);
  EXPECT_EQ(run_seeds(options, SeedRange{42, 42}).trace_hash, one.trace_hash);  // that is told of it
  options.seed = 43;
  EXPECT_NE(ClusterWorld(options).run().trace_hash, one.trace_hash);
}

// Under a sanitizer a run takes some twenty times as long, and is there for its memory errors.
#ifdef DTRAIN_SANITIZED
constexpr std::uint64_t kHeldSeeds = 17, kSeveralHostsSeeds = 1, kManyHostsSeeds = 1;
constexpr std::size_t kEveryOnceFailed = 20, kManyHosts = 12;
#else
constexpr std::uint64_t kHeldSeeds = 40, kSeveralHostsSeeds = 6, kManyHostsSeeds = 2;  // tests/run.sh scans many more
constexpr std::size_t kEveryOnceFailed = 5, kManyHosts = 24;
#endif

TEST(World, SeveralHostsHoldWithAndWithoutFaults) {
  for (const std::size_t nodes : {2u, 3u, 5u}) {
    for (const bool with_faults : {false, true}) {
      RunOptions options;
      options.nodes = nodes;
      if (!with_faults) options.faults = FaultSet();
      const Report report = run_seeds(options, SeedRange{1, kSeveralHostsSeeds});
      EXPECT_FALSE(report.violation) << nodes << " nodes, seed " << report.failed_seed << " broke " << report.violation->invariant << ": "
                                     << report.violation->what;
      EXPECT_GT(report.attempts, report.jobs);
    }
  }
}

// More than can have a copy of the ledger, and jobs of many tasks.
TEST(World, ManyHostsHold) {
  RunOptions options;
  options.nodes = kManyHosts;
  options.duration = 200s;
  const Report report = run_seeds(options, SeedRange{1, kManyHostsSeeds});
  EXPECT_FALSE(report.violation) << broken_text(report);
  EXPECT_GT(report.attempts, options.nodes * kManyHostsSeeds);
}

// Worlds that showed a fault, of the agent or of a checker, when this code met them. What a seed shows changes with the world.
TEST(World, SeedsThatOnceFailed) {
  struct Once {
    std::size_t nodes;
    std::uint64_t seed;
    bool quorum_lost = false;  // those before it was part of `all` are another course with it
    bool gpu_held = false;     // likewise
    bool host_stop = false;    // likewise
    bool upgrade = false;      // likewise
  };
  // clang-format off
  constexpr Once kOnce[] = {
      {1, 696}, {1, 770}, {1, 2175}, {1, 2295}, {1, 4698}, {1, 7822}, {1, 14565}, {3, 138}, {3, 158}, {3, 209}, {3, 251},
      {3, 272}, {3, 292}, {3, 349}, {3, 353}, {3, 431}, {3, 472}, {3, 486}, {3, 527}, {3, 544}, {3, 666}, {3, 704}, {3, 725},
      {3, 852}, {3, 931}, {3, 1023}, {3, 1254}, {3, 1269}, {3, 1782}, {3, 1838}, {5, 12}, {5, 193}, {5, 864}, {3, 596, true},
      {5, 152, true}, {5, 386, true}, {3, 1287, true}, {3, 1752, true}, {3, 2217}, {3, 3171}, {3, 3198, true}, {3, 6677},
      {3, 9733}, {3, 13716}, {3, 8182, true}, {3, 9403, true}, {3, 15151, true}, {3, 16190, true}, {3, 18110, true},
      {3, 19786, true}, {1, 1407, true}, {1, 1135, true, true}, {1, 2234, true, true}, {1, 9495, true, true},
      {1, 1607, true, true}, {3, 743, true, true}, {3, 2951, true, true}, {1, 8821, true, true}, {1, 12944, true, true},
      {3, 13670, true, true}, {3, 474, true, true}, {3, 7601, true, true}, {3, 9588, true, true}, {3, 12003, true, true},
      {3, 16901, true, true}, {3, 17652, true, true}, {1, 2044, true, true}, {1, 14680, true, true}, {3, 3440, true, true},
      {3, 16860, true, true}, {3, 91, true, true, true}, {3, 209, true, true, true}, {3, 255, true, true, true},
      {3, 756, true, true, true}, {3, 922, true, true, true}, {5, 67, true, true, true}, {3, 864, true, true, true, true},
      {3, 1393, true, true, true, true}, {3, 2115, true, true, true, true}, {3, 370, true, true, true, true},
      {3, 624, true, true, true, true}, {12, 4, true, true, true, true},
  };
  // clang-format on
  std::size_t turn = 0;
  for (const Once& once : kOnce) {
    if (turn++ % kEveryOnceFailed != 0) continue;
    RunOptions options;
    options.nodes = once.nodes;
    options.faults.set(Fault::quorum_lost, once.quorum_lost);
    options.faults.set(Fault::gpu_held, once.gpu_held);
    options.faults.set(Fault::host_stop, once.host_stop);
    options.faults.set(Fault::upgrade, once.upgrade);
    const Report report = run_seeds(options, SeedRange{once.seed, once.seed});
    EXPECT_FALSE(report.violation) << once.nodes << " hosts, seed " << once.seed << " broke " << report.violation->invariant << ": "
                                   << report.violation->what;
  }
}

TEST(World, HoldsWithAndWithoutFaults) {
  for (const bool with_faults : {false, true}) {
    RunOptions options;
    if (!with_faults) options.faults = FaultSet();
    const Report report = run_seeds(options, SeedRange{1, kHeldSeeds});
    EXPECT_FALSE(report.violation) << "seed " << report.failed_seed << " broke " << report.violation->invariant << ": "
                                   << report.violation->what;
    EXPECT_EQ(report.seeds, kHeldSeeds);
    EXPECT_GE(report.compared, 2u);
  }
}

TEST(Replay, NamesEveryOption) {
  RunOptions options;
  options.broken_rule = "budget";
  options.duration = 120s;
  EXPECT_EQ(replay_command(options, 9),
            "dtrain-sim --world cluster --nodes 1 --seeds 9..9 --duration 120000ms --faults all --break budget");
}

#ifndef DTRAIN_SANITIZED  // hundreds of runs
struct BrokenRule {
  const char* rule;
  const char* invariant;  // the checker that must notice
  std::size_t nodes = 1;
  const char* faults = "all";
  std::uint64_t first_seed = 1;  // rarely shown: just before the first that does
  const char* without = "";      // the checker that is as a rule the first to notice
  bool copies_compare = true;    // and mend what the rule broke
};

class Checkers : public testing::TestWithParam<BrokenRule> {};

// Among the first seeds one breaks just this invariant; another checker may notice the same deed in other seeds.
TEST_P(Checkers, NoticeABrokenRule) {
  constexpr std::uint64_t kSeeds = 300;
  RunOptions options;
  options.broken_rule = GetParam().rule;
  options.nodes = GetParam().nodes;
  options.faults = FaultSet::parse(GetParam().faults).value();
  options.without = GetParam().without;
  options.copies_compare = GetParam().copies_compare;
  const std::uint64_t first = GetParam().first_seed;
  for (options.seed = first; options.seed < first + kSeeds; ++options.seed) {
    const RunResult result = ClusterWorld(options).run();
    if (result.violation && result.violation->invariant == GetParam().invariant) return;
  }
  FAIL() << "nobody noticed that " << GetParam().rule << " was broken";
}

// A program that leaves out what it does not know parts the copies; of those that compare themselves few are seen before they are equal
// again.
TEST(Copies, ThatPartAreMended) {
  const auto parted = [](bool compare) {
    std::size_t seen = 0;
    RunOptions options;
    options.broken_rule = "unknown-entry-stops";
    options.nodes = 3;
    options.faults = FaultSet::parse("upgrade").value();
    options.copies_compare = compare;
    for (options.seed = 13; options.seed <= 31; ++options.seed) {  // the first and the last that show it among sixty
      const RunResult result = ClusterWorld(options).run();
      seen += result.violation && result.violation->invariant == "copies_equal";
    }
    return seen;
  };
  const std::size_t alone = parted(false), compared = parted(true);
  EXPECT_GT(alone, 0u);
  EXPECT_LT(compared, alone) << compared << " with comparisons, " << alone << " without";
}

INSTANTIATE_TEST_SUITE_P(
    Rules, Checkers,
    testing::Values(
        BrokenRule{"completion-durable", "completed_task_never_rerun"}, BrokenRule{"start-order", "start_order"},
        BrokenRule{"budget", "budgets_respected"}, BrokenRule{"deleted-gives-its-name", "acknowledged_submit_never_lost"},
        BrokenRule{"end-is-true", "stateful_task_never_twice"},
        BrokenRule{"ack-after-commit", "acknowledged_submit_never_lost", 1, "all", 1, "ledger_linearisable"},
        BrokenRule{"orphan-kill", "no_orphan"}, BrokenRule{"verify-before-restore", "restore_choice"},
        BrokenRule{"commit-durable", "replay_equal"}, BrokenRule{"one-completion", "single_completion"},
        BrokenRule{"exit-told", "no_orphan"}, BrokenRule{"staging-told", "every_job_progresses"},
        BrokenRule{"new-ports", "ports_not_reused"}, BrokenRule{"prolog-first", "hooks_around_tasks"},
        BrokenRule{"epilog-last", "hooks_around_tasks"}, BrokenRule{"own-gpu", "gpus_not_shared"},
        BrokenRule{"own-cpus", "cpus_not_shared"}, BrokenRule{"gpus-reclaimed", "gpus_reclaimed"},
        BrokenRule{"gpu-notes-are-read", "gpus_reclaimed"}, BrokenRule{"disk-failure-told", "stops_when_disk_fails"},
        BrokenRule{"stateful-waits-for-its-host", "stateful_task_never_twice", 3, "all", 20},
        BrokenRule{"drained-gets-nothing", "drained_gets_nothing", 3},
        BrokenRule{"fetched-is-staged", "every_job_progresses", 5, "all", 18}, BrokenRule{"copied-is-staged", "restore_choice", 3},
        BrokenRule{"restore-by-lineage", "restore_choice", 3, "all", 185},
        BrokenRule{"own-copy-is-verified", "restore_choice", 3, "all", 458},
        BrokenRule{"newest-is-waited-for", "restore_choice", 3, "all", 142},
        BrokenRule{"victims-have-lower-priority", "preempted_for_higher", 3, "all", 2},
        BrokenRule{"preempted-costs-nothing", "preempted_for_higher", 3},
        BrokenRule{"lease-counted-out", "stateful_task_never_twice", 3, "all", 28},
        BrokenRule{"restarts-wait-for-the-frozen", "restarts_wait_for_the_frozen", 3, "all", 170},
        BrokenRule{"kill-before-next-generation", "stateful_task_never_twice", 3}, BrokenRule{"lost-host-rests", "lost_host_rests", 3},
        BrokenRule{"report-of-its-host", "reports_of_its_host", 3, "all", 14},
        BrokenRule{"frozen-costs-nothing", "frozen_costs_nothing", 3, "all", 45},
        BrokenRule{"consequence-costs-nothing", "consequences_cost_nothing", 3},
        BrokenRule{"unknown-entry-stops", "copies_equal", 3, "all", 162, "", false}, BrokenRule{"version-of-all", "reads_what_it_knows", 3},
        BrokenRule{"grows-into-room", "grows_into_room", 3, "host-away", 100},
        BrokenRule{"gang-begins-whole", "gang_begins_whole", 3, "all", 8},
        BrokenRule{"epoch-fence", "grants_are_of_the_newest", 3, "all", 115},
        BrokenRule{"elsewhere-waits-for-the-frozen", "moves_wait_for_the_frozen", 5, "isolate,partition,reboot,agent-kill", 259},
        BrokenRule{"unheard-host-keeps", "stateful_task_never_twice", 3, "quorum-lost,agent-kill,partition,isolate,task-kill", 195},
        BrokenRule{"never-fits-is-true", "every_job_progresses", 3, "all", 18}, BrokenRule{"lists-as-of-now", "ledger_linearisable"},
        BrokenRule{"ack-after-commit", "ledger_linearisable", 3}),
    [](const auto& param) {
      std::string name = std::string(param.param.rule) + "_by_" + param.param.invariant;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });
#endif

}  // namespace
}  // namespace dtrain::sim
