// Jobs that go on with fewer tasks than their users want: what a generation may have, and when all are wanted again.
#include <gmock/gmock.h>

#include "common/cluster/shrink.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::Contains;
using ::testing::Not;

class LedgerShrink : public LedgerWorld {
 protected:
  // Each rank knows all others' addresses.
  static job::JobSpec gang(std::uint32_t workers, std::uint32_t least) {
    job::JobSpec spec = generic_job(workers);
    spec.roles["worker"].min_replicas = least;
    spec.roles["worker"].command = {"true", "{hosts:worker}"};
    return spec;
  }
  Applied begin_with(JobId id, std::uint32_t workers, Sizes sizes) {
    BeginGeneration b;
    b.job = id;
    b.generation = job(id).generation + 1;
    for (std::uint32_t i = 0; i < workers; ++i) b.placements.push_back({{"worker", i}, "n1", {"127.0.0.1", next_port_++}, {}});
    b.sizes = std::move(sizes);
    return apply(CommandType::begin_generation, b);
  }
  Applied more(JobId id, std::uint32_t from, std::uint32_t to) {
    BeginGeneration b;
    b.job = id;
    b.generation = job(id).generation;
    for (std::uint32_t i = from; i < to; ++i) b.placements.push_back({{"worker", i}, "n1", {"127.0.0.1", next_port_++}, {}});
    return apply(CommandType::extend_generation, b);
  }
  void goes(JobId id) {
    for (const TaskState state : {TaskState::fetching, TaskState::staged, TaskState::running}) all(id, state);
    ASSERT_EQ(job(id).state, JobState::running);
  }
  // It ran whole, and wants its next generation.
  void halts(JobId id) {
    act(id, ActionKind::restart);
    everything_ended(id);
    ASSERT_TRUE(job(id).needs_generation && job(id).nothing_runs());
  }
  void makes_room(JobId id) {
    job::JobSpec spec = generic_job(1);
    spec.name = "urgent" + std::to_string(job(id).generation);
    spec.policy.priority = 1;
    ASSERT_TRUE(apply(CommandType::preempt_job, PreemptJob{id, job(id).generation, submit(spec)}).status);
    everything_ended(id);
    ASSERT_TRUE(job(id).needs_generation && job(id).nothing_runs());
  }
  std::uint32_t version() const { return ledger_.state().version; }
  std::uint32_t size(JobId id) const { return job(id).spec.roles.at("worker").replicas; }
};

TEST_F(LedgerShrink, AGenerationHasAtLeastTheFewestAndTheNextIsWholeAgain) {
  const JobId id = submit(gang(4, 2));
  EXPECT_FALSE(begin_with(id, 3, {{"worker", 3}}).status) << "a run begins whole";
  run(id);
  halts(id);
  EXPECT_FALSE(begin_with(id, 1, {{"worker", 1}}).status) << "below minReplicas";
  EXPECT_FALSE(begin_with(id, 4, {{"worker", 4}}).status) << "that is whole";
  EXPECT_FALSE(begin_with(id, 2, {{"worker", 3}}).status) << "it says another number than it places";
  EXPECT_FALSE(begin_with(id, 3, {{"ps", 3}}).status);
  const std::uint32_t restarts = job(id).restarts, spent = job(id).budget_spent;
  ASSERT_TRUE(begin_with(id, 3, {{"worker", 3}}).status);
  EXPECT_EQ(job(id).tasks.size(), 3u);
  EXPECT_EQ(wanted_replicas(job(id), "worker"), 4u);
  EXPECT_EQ(whole_tasks(job(id)).size(), 4u);
  EXPECT_EQ(runs_with(job(id)), "runs with 3 of 4 worker");
  EXPECT_THAT(event_types(), Contains("job.shrunk"));
  EXPECT_EQ(job(id).former_tasks.at({"worker", 3}), 1u) << "its attempts count on";
  goes(id);
  EXPECT_EQ(job(id).restarts, restarts);
  EXPECT_EQ(job(id).budget_spent, spent) << "shrinking costs nothing";

  halts(id);
  EXPECT_EQ(runs_with(job(id)), "");
  EXPECT_EQ(fewest_tasks(job(id), false, version()), (Sizes{{"worker", 3}})) << "so many it had: at once";
  EXPECT_EQ(fewest_tasks(job(id), true, version()), (Sizes{{"worker", 2}}));
  ASSERT_TRUE(begin_with(id, 4, {}).status);
  EXPECT_EQ(size(id), 4u);
  EXPECT_TRUE(job(id).shrunk.empty());
  EXPECT_EQ(job(id).tasks.at({"worker", 3}).first_attempt, 2u);
  EXPECT_THAT(event_types(), Contains("job.grown"));
}

TEST_F(LedgerShrink, ItSucceedsWithTheTasksThatItHas) {
  const JobId id = submit(gang(3, 1));
  run(id);
  halts(id);
  ASSERT_TRUE(begin_with(id, 2, {{"worker", 2}}).status);
  goes(id);
  std::vector<TaskObservation> done;
  for (const auto& [task, t] : job(id).tasks) {
    auto o = seen(id, task, TaskState::succeeded);
    o.ended = true;
    done.push_back(o);
  }
  report(done);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  // A rerun is a new run: it begins whole.
  act(id, ActionKind::rerun);
  EXPECT_TRUE(fewest_tasks(job(id), true, version()).empty());
  EXPECT_EQ(whole_tasks(job(id)).size(), 3u);
  EXPECT_FALSE(begin_with(id, 2, {{"worker", 2}}).status);
  ASSERT_TRUE(begin_with(id, 3, {}).status);
  EXPECT_EQ(size(id), 3u);
}

TEST_F(LedgerShrink, WhoIsResumedBeginsWhole) {
  const JobId id = submit(gang(4, 2));
  run(id);
  halts(id);
  ASSERT_TRUE(begin_with(id, 3, {{"worker", 3}}).status);
  goes(id);
  makes_room(id);
  act(id, ActionKind::suspend);
  act(id, ActionKind::resume);
  EXPECT_FALSE(may_shrink(job(id), version()));
  EXPECT_TRUE(fewest_tasks(job(id), true, version()).empty());
  EXPECT_FALSE(begin_with(id, 3, {{"worker", 3}}).status);
  EXPECT_TRUE(begin_with(id, 4, {}).status);
}

TEST_F(LedgerShrink, WhoMadeRoomGoesOnAsItWas) {
  const JobId id = submit(gang(4, 2));
  run(id);
  makes_room(id);
  EXPECT_FALSE(may_shrink(job(id), version())) << "it was whole";
  EXPECT_FALSE(begin_with(id, 3, {{"worker", 3}}).status);
  run(id);
  halts(id);
  ASSERT_TRUE(begin_with(id, 3, {{"worker", 3}}).status);
  goes(id);
  makes_room(id);
  EXPECT_TRUE(may_shrink(job(id), version()));
  EXPECT_EQ(fewest_tasks(job(id), false, version()), (Sizes{{"worker", 3}})) << "so many it had: at once";
  EXPECT_EQ(fewest_tasks(job(id), true, version()), (Sizes{{"worker", 2}}));
  EXPECT_TRUE(begin_with(id, 2, {{"worker", 2}}).status);
}

TEST_F(LedgerShrink, WhoMadeRoomAndIsScaledOrRunAgainBeginsWhole) {
  const JobId id = submit(gang(4, 2));
  run(id);
  halts(id);
  ASSERT_TRUE(begin_with(id, 3, {{"worker", 3}}).status);
  goes(id);
  makes_room(id);
  const auto copy = Ledger::restore(ledger_.snapshot(), 0);
  ASSERT_TRUE(copy);
  EXPECT_TRUE(may_shrink(*copy->find(id), version()));
  const auto to_five = [](JobAction& a) {
    a.role = "worker";
    a.replicas = 5;
  };
  ASSERT_TRUE(act(id, ActionKind::scale, to_five).status);
  EXPECT_FALSE(may_shrink(job(id), version()));

  run(id);
  halts(id);
  ASSERT_TRUE(begin_with(id, 3, {{"worker", 3}}).status);
  goes(id);
  makes_room(id);
  act(id, ActionKind::cancel);
  act(id, ActionKind::rerun);
  EXPECT_FALSE(may_shrink(job(id), version()));
}

TEST_F(LedgerShrink, WhatHasCompletedIsNotLeftOut) {
  job::JobSpec spec = ps_job();
  spec.roles["worker"] = role(4);
  spec.roles["worker"].min_replicas = 1;
  const JobId id = submit(spec);
  run(id);
  auto o = seen(id, {"worker", 2}, TaskState::succeeded);
  o.ended = true;
  report({o});
  ASSERT_TRUE(job(id).tasks.at({"worker", 2}).completed);
  EXPECT_EQ(fewest_tasks(job(id), true, version()), (Sizes{{"worker", 3}})) << "it would be run again when the job grows";
}

// Which begins again with the others: how many they are is up to the room that there is.
TEST_F(LedgerShrink, ARankThatHasCompletedMayBeLeftOut) {
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{3}).status);
  job::JobSpec spec = gang(4, 2);
  spec.policy.collective = true;
  const JobId id = submit(spec);
  run(id);
  auto o = seen(id, {"worker", 3}, TaskState::succeeded);
  o.ended = true;
  report({o});
  EXPECT_EQ(fewest_tasks(job(id), true, version()), (Sizes{{"worker", 2}}));
}

TEST_F(LedgerShrink, WhatAUserScalesToIsWantedFromThenOn) {
  const auto to = [](std::uint32_t n) {
    static std::uint32_t wanted;
    wanted = n;
    return [](JobAction& a) {
      a.role = "worker";
      a.replicas = wanted;
    };
  };
  const auto shrunk = [&](const std::string& name) {
    job::JobSpec spec = gang(4, 2);
    spec.name = name;
    const JobId id = submit(spec);
    run(id);
    halts(id);
    EXPECT_TRUE(begin_with(id, 3, {{"worker", 3}}).status);
    goes(id);
    return id;
  };
  const JobId content = shrunk("content");
  ASSERT_TRUE(act(content, ActionKind::scale, to(3)).status);
  EXPECT_EQ(job(content).halt, Halt::none) << "it has so many";
  EXPECT_TRUE(job(content).shrunk.empty());
  EXPECT_EQ(wanted_replicas(job(content), "worker"), 3u);
  EXPECT_EQ(job(content).spec.roles.at("worker").min_replicas, 2u);

  const JobId again = shrunk("again");
  ASSERT_TRUE(act(again, ActionKind::scale, to(4)).status);
  EXPECT_EQ(job(again).halt, Halt::scale) << "all that it wants is tried again";
  EXPECT_EQ(size(again), 4u);

  const JobId fewer = shrunk("fewer");
  ASSERT_TRUE(act(fewer, ActionKind::scale, to(1)).status);
  EXPECT_EQ(job(fewer).spec.roles.at("worker").min_replicas, 1u);
  EXPECT_TRUE(job(fewer).shrunk.empty());
}

TEST_F(LedgerShrink, WhereNobodyNoticesItGrowsBesideTheTasksThatRun) {
  job::JobSpec spec = generic_job(4);
  spec.roles["worker"].min_replicas = 1;
  const JobId id = submit(spec);
  run(id);
  halts(id);
  ASSERT_TRUE(begin_with(id, 2, {{"worker", 2}}).status);
  goes(id);
  const Generation before = job(id).generation;
  ASSERT_TRUE(more(id, 2, 3).status);
  EXPECT_EQ(size(id), 3u);
  EXPECT_EQ(job(id).shrunk.at("worker"), 4u);
  ASSERT_TRUE(more(id, 3, 4).status);
  EXPECT_TRUE(job(id).shrunk.empty());
  EXPECT_EQ(job(id).generation, before);
  EXPECT_EQ(job(id).tasks.size(), 4u);
}

TEST_F(LedgerShrink, ASnapshotKeepsWhatIsWanted) {
  const JobId id = submit(gang(4, 2));
  run(id);
  halts(id);
  ASSERT_TRUE(begin_with(id, 3, {{"worker", 3}}).status);
  const auto copy = Ledger::restore(ledger_.snapshot(), 0);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->find(id)->shrunk, job(id).shrunk);
  EXPECT_EQ(copy->snapshot(), ledger_.snapshot());
}

// As coordinators wrote it before jobs shrank: what is placed counts, whatever its number.
TEST_F(LedgerShrink, ACommandWithoutSizesIsTakenAsBefore) {
  const JobId id = submit(gang(4, 2));
  ASSERT_TRUE(begin_with(id, 4, {}).status);
  EXPECT_TRUE(job(id).shrunk.empty());
  EXPECT_THAT(event_types(), Not(Contains("job.shrunk")));
}

TEST_F(LedgerShrink, WithoutAGangItBeginsInPartsAndAllMustSucceed) {
  job::JobSpec spec = generic_job(4);
  spec.policy.gang = false;
  ASSERT_EQ(wire::needed_version(spec), 2u);
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{2}).status);
  const JobId id = submit(spec);
  EXPECT_EQ(fewest_tasks(job(id), false, version()), (Sizes{{"worker", 1}}));
  ASSERT_TRUE(begin_with(id, 2, {{"worker", 2}}).status);
  goes(id);
  const auto succeed = [&](std::uint32_t index) {
    TaskObservation o = seen(id, {"worker", index}, TaskState::succeeded);
    o.ended = true;
    o.exit = job::Exit{};
    o.exit_attempt = o.attempt;
    report({o});
  };
  succeed(0);
  succeed(1);
  EXPECT_FALSE(is_final(job(id).state)) << "two of them have not begun";
  for (std::uint32_t i : {2u, 3u}) {
    ASSERT_TRUE(more(id, i, i + 1).status);
    for (const TaskState state : {TaskState::fetching, TaskState::staged, TaskState::running}) report({seen(id, {"worker", i}, state)});
    EXPECT_EQ(job(id).state, JobState::running);
    succeed(i);
  }
  EXPECT_EQ(job(id).state, JobState::succeeded);
}

}  // namespace
}  // namespace dtrain::cluster
