// Who has to make room, against a naive twin that tries every set of running jobs: never without need, never too many.
#include <gtest/gtest.h>

#include <bit>

#include "common/base/rng.h"
#include "common/cluster/queue_turn.h"
#include "tests/unit/cluster/hosts.h"

namespace dtrain::cluster {
namespace {

struct Crowd {
  std::vector<HostCapacity> hosts;
  std::vector<job::JobSpec> specs;
  std::vector<RunningJob> running;
  job::JobSpec wanted;
};

Crowd draw(std::uint64_t seed) {
  Rng rng(seed);
  Crowd c;
  const std::uint64_t hosts = 1 + rng.below(3), jobs = 1 + rng.below(5);
  for (std::uint64_t i = 0; i < hosts; ++i) {
    const std::uint64_t cpus = 2 + rng.below(5);
    c.hosts.push_back(host("h" + std::to_string(i), cpus));
  }
  c.specs.resize(jobs);
  Capacity free(c.hosts);
  for (std::uint64_t i = 0; i < jobs; ++i) {
    const auto tasks = static_cast<std::uint32_t>(1 + rng.below(3));
    const std::uint64_t cpus = 1 + rng.below(3);
    c.specs[i] = workers_job(tasks, cpus);
    c.specs[i].policy.priority = static_cast<std::int32_t>(rng.below(2));
    const auto placed = place(c.specs[i], wanted_tasks(c.specs[i]), free);
    if (!placed) continue;
    free.hold(c.specs[i], *placed);
    c.running.push_back({i + 1, &c.specs[i], *placed, std::chrono::seconds(i), {}, false});
  }
  const auto tasks = static_cast<std::uint32_t>(1 + rng.below(4));
  const std::uint64_t cpus = 1 + rng.below(4);
  c.wanted = workers_job(tasks, cpus);
  return c;
}

TEST(VictimsTwin, TheFewestThatSuffice) {
  std::uint64_t found = 0, none = 0, several = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Crowd c = draw(seed);
    Capacity free(c.hosts);
    std::vector<const RunningJob*> candidates;
    for (const RunningJob& job : c.running) {
      free.hold(*job.spec, job.placements);
      candidates.push_back(&job);
    }
    const WaitingJob job{99, &c.wanted, wanted_tasks(c.wanted), 1h, {}, false, {}};
    const auto choice = choose_victims(job, free, candidates);
    int fewest = -1;
    for (std::uint32_t set = 0; set < 1u << c.running.size(); ++set) {
      if (fewest >= 0 && std::popcount(set) >= fewest) continue;
      Capacity then = free;
      for (std::size_t i = 0; i < c.running.size(); ++i)
        if ((set >> i & 1) != 0) then.release(*c.running[i].spec, c.running[i].placements);
      if (place(c.wanted, job.tasks, then)) fewest = std::popcount(set);
    }
    ASSERT_EQ(choice.has_value(), fewest >= 0) << "seed " << seed;
    if (!choice) {
      ++none;
      continue;
    }
    ASSERT_EQ(static_cast<int>(choice->victims.size()), fewest) << "seed " << seed;
    ++found;
    if (fewest > 1) ++several;
  }
  EXPECT_GT(found, 200u);
  EXPECT_GT(none, 20u);
  EXPECT_GT(several, 50u);
}

}  // namespace
}  // namespace dtrain::cluster
