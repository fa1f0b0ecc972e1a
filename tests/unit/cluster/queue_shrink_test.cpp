// Waiting jobs that may start with fewer tasks than they want: never fewer than their least, as many as there is room for, and
// by the rules of the queue like all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/base/rng.h"
#include "common/cluster/queue.h"
#include "tests/unit/cluster/hosts.h"

namespace dtrain::cluster {
namespace {

using ::testing::HasSubstr;

WaitingJob waits(JobId id, const job::JobSpec& spec, std::map<std::string, std::uint32_t> least) {
  return {.id = id,
          .spec = &spec,
          .tasks = wanted_tasks(spec),
          .submitted = 0s,
          .runs_for = {},
          .resumes = true,
          .standing = {},
          .preempts = true,
          .run = 2,
          .least = std::move(least)};
}

std::map<std::string, std::uint32_t> count(const std::vector<TaskPlacement>& placements) {
  std::map<std::string, std::uint32_t> by_role;
  for (const TaskPlacement& place : placements) by_role[place.task.role] = std::max(by_role[place.task.role], place.task.index + 1);
  std::size_t sum = 0;
  for (const auto& [role, n] : by_role) sum += n;
  EXPECT_EQ(sum, placements.size()) << "the last ones are left out";
  return by_role;
}

using Counts = std::map<std::string, std::uint32_t>;

TEST(QueueShrink, AsManyAsThereIsRoomFor) {
  const job::JobSpec spec = workers_job(6, 1, 1);
  const Capacity free({host("h1", 8, 2), host("h2", 8, 2)});
  JobQueue queue;
  const Decision whole_or_none = queue.decide(free, {}, {waits(1, spec, {})}, 1h);
  EXPECT_TRUE(whole_or_none.starts.empty());
  ASSERT_EQ(whole_or_none.waits.size(), 1u);
  EXPECT_EQ(whole_or_none.waits[0].kind, WaitKind::never_fits);
  EXPECT_TRUE(queue.decide(free, {}, {waits(1, spec, {{"worker", 5}})}, 1h).starts.empty());
  const Decision four = queue.decide(free, {}, {waits(1, spec, {{"worker", 2}})}, 1h);
  ASSERT_EQ(four.starts.size(), 1u);
  EXPECT_EQ(count(four.starts[0].placements), (Counts{{"worker", 4}}));
  EXPECT_TRUE(four.waits.empty());
  const Capacity larger({host("h1", 8, 2), host("h2", 8, 2), host("h3", 8, 2)});
  EXPECT_EQ(queue.decide(larger, {}, {waits(1, spec, {{"worker", 2}})}, 1h).starts.at(0).placements.size(), 6u) << "all come first";
}

// All of it will never have room, and others hold what there is: it has its turn with what there may be.
TEST(QueueShrink, WhoNeverFitsWholeReservesForFewer) {
  const std::vector<HostCapacity> hosts{host("h1", 8, 2), host("h2", 8, 2)};
  const job::JobSpec spec = workers_job(6, 1, 1), other = workers_job(4, 1, 1), small = workers_job(1, 1, 1);
  Capacity free(hosts);
  RunningJob runs{.id = 7, .spec = &other, .placements = *place(other, wanted_tasks(other), free), .ends_by = {}};
  free.hold(other, runs.placements);
  JobQueue queue;
  const Decision first = queue.decide(free, {runs}, {waits(1, spec, {{"worker", 3}}), waits(2, small, {})}, 1h);
  EXPECT_TRUE(first.starts.empty());
  ASSERT_TRUE(first.reservation);
  EXPECT_EQ(first.reservation->job, 1u);
  EXPECT_EQ(first.reservation->placements.size(), 4u);
  ASSERT_EQ(first.waits.size(), 2u);
  EXPECT_THAT(first.waits[0].reason, HasSubstr("it is next in the queue"));
  const Decision then = queue.decide(Capacity(hosts), {}, {waits(1, spec, {{"worker", 3}}), waits(2, small, {})}, 1h);
  ASSERT_EQ(then.starts.size(), 1u);
  EXPECT_EQ(then.starts[0].job, 1u);
  EXPECT_EQ(then.starts[0].placements.size(), 4u);
}

// Else they would have ended for nothing.
TEST(QueueShrink, WhoseVictimsAreEndingWaitsForThem) {
  const std::vector<HostCapacity> hosts{host("h1", 8, 2), host("h2", 8, 2)};
  job::JobSpec low = workers_job(3, 1, 1), high = workers_job(4, 1, 1);
  high.policy.priority = 1;
  low.policy.stop_grace_period = 60s;
  Capacity free(hosts);
  RunningJob runs{.id = 7, .spec = &low, .placements = *place(low, wanted_tasks(low), free), .ends_by = {}};
  free.hold(low, runs.placements);
  JobQueue queue;
  const Decision first = queue.decide(free, {runs}, {waits(1, high, {})}, 1h);
  ASSERT_EQ(first.preemptions.size(), 1u);
  runs.ending = runs.returns = true;
  EXPECT_TRUE(queue.decide(free, {runs}, {waits(1, high, {{"worker", 1}})}, 1h).starts.empty());
  EXPECT_EQ(queue.decide(Capacity(hosts), {}, {waits(1, high, {{"worker", 1}})}, 1h).starts.at(0).placements.size(), 4u);
}

// What is reserved for who comes first is not taken by fewer of another either.
TEST(QueueShrink, FewerAreBackFilledLikeAnyOther) {
  const std::vector<HostCapacity> hosts{host("h1", 8, 2), host("h2", 8, 2)};
  job::JobSpec first = workers_job(3, 1, 1);
  first.policy.priority = 1;
  const job::JobSpec runs_spec = workers_job(2, 1, 1), spec = workers_job(4, 1, 1);
  Capacity free(hosts);
  RunningJob runs{
      .id = 7, .spec = &runs_spec, .placements = *place(runs_spec, wanted_tasks(runs_spec), free), .ends_by = {}, .spared = true};
  free.hold(runs_spec, runs.placements);
  const Decision d = JobQueue().decide(free, {runs}, {waits(1, first, {}), waits(2, spec, {{"worker", 1}})}, 1h);
  ASSERT_EQ(d.starts.size(), 1u);
  EXPECT_EQ(d.starts[0].job, 2u);
  EXPECT_EQ(d.starts[0].placements.size(), 1u) << "of two that are free one is reserved";
}

// All of it never fits: its turn comes with fewer, so it is not told that it can never run.
TEST(QueueShrink, WhoStandsBehindIsNotToldThatItNeverRuns) {
  const std::vector<HostCapacity> hosts{host("h1", 8, 2), host("h2", 8, 2)};
  job::JobSpec first = workers_job(4, 1, 1);
  first.policy.priority = 1;
  const job::JobSpec other = workers_job(4, 1, 1), spec = workers_job(6, 1, 1), too_large = workers_job(6, 1, 1);
  Capacity free(hosts);
  RunningJob runs{.id = 7, .spec = &other, .placements = *place(other, wanted_tasks(other), free), .ends_by = {}, .spared = true};
  free.hold(other, runs.placements);
  JobQueue queue;
  const Decision d =
      queue.decide(free, {runs}, {waits(1, first, {}), waits(2, spec, {{"worker", 3}}), waits(3, too_large, {{"worker", 5}})}, 1h);
  ASSERT_EQ(d.waits.size(), 3u);
  EXPECT_EQ(d.waits[1].kind, WaitKind::behind);
  EXPECT_THAT(d.waits[1].reason,
              HasSubstr("there is never room for all of it, so it goes on with fewer tasks: 6 tasks of worker need 1 GPU, 1000m CPU each"));
  EXPECT_EQ(d.waits[2].kind, WaitKind::never_fits);
  EXPECT_THAT(d.waits[2].reason, HasSubstr("can never run here: 6 tasks of worker"));
}

// With what runs now the log has no room for more copies: that passes.
TEST(QueueShrink, WhoFindsNoRoomInTheLogIsNotToldThatItNeverRuns) {
  HostCapacity without = host("h2", 8, 4);
  without.no_copy = true;
  const job::JobSpec spec = workers_job(1, 1, 4);
  const Decision d = JobQueue().decide(Capacity({host("h1", 8, 2), without}), {}, {waits(1, spec, {})}, 1h);
  EXPECT_TRUE(d.starts.empty());
  EXPECT_FALSE(d.reservation);
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].kind, WaitKind::behind);
  EXPECT_THAT(d.waits[0].reason, HasSubstr("as many hosts as can have a copy of the log (250) have tasks"));
}

// Once it has waited long enough for all of them it may have fewer: until then it has no turn, and no false word is said.
TEST(QueueShrink, WhoMayHaveFewerLaterIsNotToldThatItNeverRuns) {
  const job::JobSpec spec = workers_job(6, 1, 1);
  WaitingJob patient = waits(1, spec, {});
  patient.least_later = {{"worker", 4}};
  JobQueue queue;
  const Decision d = queue.decide(Capacity({host("h1", 8, 2), host("h2", 8, 2)}), {}, {patient}, 1h);
  EXPECT_TRUE(d.starts.empty());
  EXPECT_FALSE(d.reservation);
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].kind, WaitKind::behind);
  patient.least_later = {{"worker", 5}};
  EXPECT_EQ(queue.decide(Capacity({host("h1", 8, 2), host("h2", 8, 2)}), {}, {patient}, 1h).waits.at(0).kind, WaitKind::never_fits);
}

// It runs, whatever becomes of what it lacks.
TEST(QueueShrink, MoreTasksThatNeverFitMakeNoJobOneThatNeverRuns) {
  const std::vector<HostCapacity> hosts{host("h1", 8, 2), host("h2", 8, 2)};
  const job::JobSpec spec = workers_job(6, 1, 1), small = workers_job(1, 1, 0);
  Capacity free(hosts);
  WaitingJob more = waits(1, spec, {});
  more.tasks = {{"worker", 4}, {"worker", 5}};
  RunningJob runs{.id = 1, .spec = &spec, .placements = {}, .ends_by = {}};
  std::vector<TaskId> four = wanted_tasks(spec);
  four.resize(4);
  more.standing = runs.placements = *place(spec, four, free);
  free.hold(spec, runs.placements);
  const Decision d = JobQueue().decide(free, {runs}, {more, waits(2, small, {})}, 1h);
  ASSERT_EQ(d.waits.size(), 1u);
  EXPECT_EQ(d.waits[0].kind, WaitKind::behind);
  EXPECT_THAT(d.waits[0].reason, HasSubstr("there is never room for all of it"));
  ASSERT_EQ(d.starts.size(), 1u) << "it delays nobody";
}

// A twin that tries every number, role by role.
TEST(QueueShrink, TheTwinFindsNoMore) {
  std::uint64_t shrunk = 0, whole = 0, none = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Rng rng(seed);
    const auto draw = [&](std::uint64_t low, std::uint64_t high) { return static_cast<std::uint32_t>(low + rng.below(high - low + 1)); };
    std::vector<HostCapacity> hosts;
    for (std::uint32_t i = draw(1, 4); i > 0; --i) hosts.push_back(host("h" + std::to_string(i), draw(1, 8), draw(0, 4)));
    job::JobSpec spec = workers_job(draw(1, 12), draw(1, 3), draw(0, 1));
    if (rng.chance(1, 4)) spec.roles["worker"].anti_affinity = "host";
    Counts least{{"worker", draw(1, spec.roles["worker"].replicas)}};
    if (rng.chance(1, 2)) {
      spec.roles["aide"] = role(draw(1, 4));
      spec.roles["aide"].resources.cpu_millis = 1000 * draw(1, 3);
      if (rng.chance(1, 2)) least["aide"] = draw(1, spec.roles["aide"].replicas);
    }
    const Capacity free(hosts);
    const auto fits = [&](const Counts& sizes) {
      std::vector<TaskId> tasks;
      for (const TaskId& task : wanted_tasks(spec))
        if (task.index < sizes.at(task.role)) tasks.push_back(task);
      return place(spec, tasks, free).has_value();
    };
    Counts all, sizes;
    for (const auto& [name, r] : spec.roles) all[name] = sizes[name] = r.replicas;
    for (const auto& [name, n] : least) sizes[name] = n;
    const bool any = fits(sizes);
    for (const auto& [name, n] : least)
      while (any && sizes[name] < all[name]) {
        ++sizes[name];
        if (fits(sizes)) continue;
        --sizes[name];
        break;
      }
    const bool all_fit = fits(all);
    if (all_fit) sizes = all;
    const Decision d = JobQueue().decide(free, {}, {waits(1, spec, least)}, 1h);
    if (!any && !all_fit) {
      EXPECT_TRUE(d.starts.empty()) << "seed " << seed;
      ++none;
      continue;
    }
    ASSERT_EQ(d.starts.size(), 1u) << "seed " << seed;
    EXPECT_EQ(count(d.starts[0].placements), sizes) << "seed " << seed;
    ++(all_fit ? whole : shrunk);
  }
  EXPECT_GT(shrunk, 200u);
  EXPECT_GT(whole, 200u);
  EXPECT_GT(none, 200u);
}

}  // namespace
}  // namespace dtrain::cluster
