// What is shown of the processes of a task with ranks, and of one that somebody stopped.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StoppedRanks : public WorkingTown {};

TEST_F(StoppedRanks, AreNamedOnEveryHostAndTheJobDoesNotProgressMeanwhile) {
  submit(generic("gang", 3));
  work(5s);
  ASSERT_TRUE(described("gang").job.progressing.value) << where("gang");
  const std::string host = tasks("gang").at("worker-1").node;
  const auto of_task = [](const auto& entry) { return entry.first.task == TaskId{"worker", 1}; };
  const AssignmentId id = std::ranges::find_if(attempts, of_task)->first;
  House& house = *houses.at(static_cast<std::size_t>(host.back() - '1'));
  const auto sees = [&](AttemptNumber attempt, std::optional<StoppedProcess> stopped) {
    house.give(ProcessesSeen{id, attempt, {11, 12}, stopped});
    work(1s);
  };

  sees(attempts[id], StoppedProcess{2, 12, WallTime(1'000'000s)});
  for (std::size_t at = 0; at < houses.size(); ++at) {
    const wire::TaskView task = tasks("gang", at).at("worker-1");
    EXPECT_EQ(task.state, "Running");
    EXPECT_EQ(task.reason, "rank 1 (process 12) was stopped (SIGSTOP) at 1970-01-12T13:46:40.000Z; kill -CONT 12 lets it go on");
    if (houses[at] == &house) EXPECT_THAT(task.pids, ElementsAre(11, 12));
    else EXPECT_THAT(task.pids, IsEmpty()) << "processes are known to their host alone";
    const wire::ProgressView progress = described("gang", at).job.progressing;
    EXPECT_FALSE(progress.value);
    EXPECT_THAT(progress.why, HasSubstr("worker-1: rank 1 (process 12) was stopped"));
  }

  sees(attempts[id] + 1, std::nullopt);
  EXPECT_FALSE(described("gang").job.progressing.value) << "news of another attempt";
  sees(attempts[id], std::nullopt);
  EXPECT_TRUE(described("gang").job.progressing.value);
  EXPECT_EQ(tasks("gang").at("worker-1").reason, "");

  sees(attempts[id], StoppedProcess{0, 12, {}});
  EXPECT_THAT(tasks("gang").at("worker-1").reason, HasSubstr("its process 12 was stopped"));
  end(house, id, 9);
  work(2s);
  EXPECT_EQ(tasks("gang").at("worker-1").state, "Running") << where("gang");
  EXPECT_TRUE(described("gang").job.progressing.value) << "of the attempt before";
}

}  // namespace
}  // namespace dtrain::node
