// What becomes of tasks that have completed when their job begins another generation.
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

class LedgerCompleted : public LedgerWorld {};

TEST_F(LedgerCompleted, ACompletedTaskStaysCompletedOverGenerations) {
  const JobId id = submit(ps_job());
  run(id);
  auto done = died(id, {"worker", 0}, TaskState::succeeded, 0, 0);
  done.ended = true;
  report({done});
  EXPECT_EQ(job(id).state, JobState::running);
  report({died(id, {"ps", 0}, TaskState::failed)});
  everything_ended(id);
  begin(id);
  EXPECT_EQ(job(id).tasks.at({"worker", 0}).state, TaskState::succeeded);
  EXPECT_TRUE(job(id).tasks.at({"worker", 0}).ended);
}

// Three of four ranks waited for the fourth, which had exited 0 just before another one failed, as long as nobody looked.
TEST_F(LedgerCompleted, ARankThatIsDoneBeginsAgainWithItsGang) {
  job::JobSpec spec = generic_job(3);
  spec.framework = job::Framework::tensorflow;  // without ps: its workers are ranks
  spec.roles["evaluator"] = role(1);
  for (const std::uint32_t version : {2u, 3u}) {
    if (version == 3) {
      ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{version}).status);
    }
    spec.name = "v" + std::to_string(version);
    const JobId id = submit(spec);
    run(id);
    for (const TaskId& task : {TaskId{"worker", 1}, TaskId{"evaluator", 0}}) {
      auto done = died(id, task, TaskState::succeeded, 0, 0);
      done.ended = true;
      report({done});
    }
    EXPECT_EQ(job(id).state, JobState::running);
    report({died(id, {"worker", 2}, TaskState::failed)});
    everything_ended(id);
    ASSERT_TRUE(begin(id).status);
    const TaskRecord& rank = job(id).tasks.at({"worker", 1});
    EXPECT_EQ(rank.ended, version < 3);
    EXPECT_EQ(rank.completed, version < 3);
    EXPECT_TRUE(job(id).tasks.at({"evaluator", 0}).completed) << "nobody waits for it";
    for (const TaskState state : {TaskState::fetching, TaskState::staged, TaskState::running}) all(id, state);
    EXPECT_EQ(job(id).state, JobState::running);
    EXPECT_EQ(job(id).restarts, 1u);
  }
}

}  // namespace
}  // namespace dtrain::cluster
