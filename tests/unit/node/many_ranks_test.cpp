// A gang of a thousand ranks on 50 hosts: how many messages lie, one after the other, between a rank's death and what follows on all
// hosts. docs/benchmarks.md has the figures.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

constexpr std::size_t kRankHosts = 50;
constexpr std::uint32_t kRanksOfHost = 20;
constexpr Duration kHop = 50ms;  // a message takes so long, much longer than what is waited for on a host; all else takes no time
constexpr int kHopsWatched = 100;

class ManyRanks : public WorkingTown {
 protected:
  ManyRanks() {
    grow(kRankHosts);
    town.run_for(15s);
  }
  static job::JobSpec gang() {
    job::JobSpec spec = generic("gang", kRankHosts);
    spec.framework = job::Framework::pytorch;
    spec.policy.restart_backoff.initial = spec.policy.restart_backoff.max = Duration{0};
    spec.roles["worker"].nproc_per_node = kRanksOfHost;
    spec.roles["worker"].resources.cpu_millis = 8000;  // a host each
    return spec;
  }
  // By house: after how many hops it first wanted that.
  using Hops = std::map<House*, int>;
  struct Watched {
    Hops killed, started;
  };
  // Hop by hop, from now on. What the agents want of their tasks is done at once.
  Watched watch() {
    Watched watched;
    for (int hop = 0; hop <= kHopsWatched && watched.started.size() < kRankHosts; ++hop) {
      town.run_for(Duration{0});  // what arrives now
      for (House* house : houses)
        for (std::size_t& next = done[house]; next < house->effects.size(); ++next) {
          const Effect effect(house->effects[next]);
          if (std::holds_alternative<KillTask>(effect)) watched.killed.try_emplace(house, hop);
          if (std::holds_alternative<StartAttempt>(effect)) watched.started.try_emplace(house, hop);
          act(*house, effect);
        }
      town.run_for(kHop);
    }
    return watched;
  }
  static int last_of(const Hops& hops) {
    return std::ranges::max_element(hops, {}, [](const auto& entry) { return entry.second; })->second;
  }
};

TEST_F(ManyRanks, OrdersOfARestartReachAllHostsInOneRound) {
  submit(gang());
  work(5s);
  ASSERT_EQ(described("gang").job.state, "Running") << described("gang").waiting_for;
  ASSERT_EQ(tasks("gang").size(), kRankHosts);
  for (const Effect& effect : houses[40]->effects)
    if (const auto* launch = std::get_if<LaunchShim>(&effect)) {
      EXPECT_EQ(launch->spec.env.at("WORLD_SIZE"), "1000");
      EXPECT_EQ(launch->spec.ranks.size(), kRanksOfHost);
    }
  House& victim = *houses[40];
  const auto dead = std::ranges::find_if(
      attempts, [&](const auto& entry) { return tasks("gang").at(entry.first.task.text()).node == victim.started.facts.name; });
  ASSERT_NE(dead, attempts.end());
  town.travel = kHop;
  end(victim, AssignmentId(dead->first), 9);
  const Watched watched = watch();
  House* const coordinator = houses[0];

  ASSERT_EQ(watched.killed.size(), kRankHosts - 1) << "all but the one whose rank died";
  const int decided = watched.killed.at(coordinator);
  for (const auto& [house, hop] : watched.killed) EXPECT_EQ(hop, decided + (house == coordinator ? 0 : 1)) << house->started.facts.name;

  ASSERT_EQ(watched.started.size(), kRankHosts);
  const int begun = watched.started.at(coordinator);
  for (const auto& [house, hop] : watched.started) EXPECT_EQ(hop, begun + (house == coordinator ? 0 : 1)) << house->started.facts.name;

  EXPECT_EQ(described("gang").job.restarts, 1u);
  // To the coordinator, to the other voters and back, and to all.
  EXPECT_EQ(last_of(watched.killed), 4);
  // Likewise for the ends of the others, the next generation, and what is staged for it.
  EXPECT_LE(last_of(watched.started), 25);
}

}  // namespace
}  // namespace dtrain::node
