// Notify commands of jobs: whose they are, and until when.
#include <gtest/gtest.h>

#include "common/node/history.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

class NotifyTest : public WorkingTown {
 protected:
  template <class E>
  std::vector<std::pair<House*, E>> effects() {
    std::vector<std::pair<House*, E>> all;
    for (House* house : houses)
      for (const Effect& effect : house->effects)
        if (const auto* found = std::get_if<E>(&effect)) all.emplace_back(house, *found);
    return all;
  }
};

TEST_F(NotifyTest, EndWithTheDeletionOfTheirJob) {
  for (const char* name : {"j", "k"}) {
    job::JobSpec spec = generic(name, 1);
    spec.notify = {{"/bin/page"}, {"Running"}};
    submit(spec);
  }
  work();
  const auto run = effects<RunHook>();
  ASSERT_EQ(run.size(), 2u);
  EXPECT_NE(run[0].second.job, run[1].second.job);
  EXPECT_TRUE(effects<EndHooks>().empty());
  wire::ActionRequest remove;
  remove.job = "j";
  remove.action = wire::Action::remove;
  remove.force = true;
  ASSERT_TRUE(ask<wire::Empty>(*houses[0], wire::MessageType::action, remove, 1000));
  work(15s);
  const auto ended = effects<EndHooks>();
  ASSERT_EQ(ended.size(), 1u);
  const auto& hook = run[0].second.env.at("DTRAIN_JOB") == "j" ? run[0] : run[1];
  EXPECT_EQ(ended[0].second.job, hook.second.job);
  EXPECT_EQ(ended[0].first, hook.first) << "where it ran";
}

TEST_F(NotifyTest, AndLinesOfTheLogAreToldOnceOverARestartOfAllAgents) {
  job::JobSpec spec = generic("j", 1);
  spec.notify = {{"/bin/page"}, {"Running"}};
  submit(spec);
  work(kNoteEvery + 3s);
  ASSERT_EQ(effects<RunHook>().size(), 1u);
  const auto lines = [&] {
    std::size_t count = 0;
    for (House* house : houses) count += house->log.count("job.running job=j");
    return count;
  };
  ASSERT_EQ(lines(), 1u);
  for (int life = 0; life < 3; ++life) {
    for (House* house : houses) house->kill();
    for (House* house : houses) house->start();
    town.run_for(30s);
    work();
  }
  EXPECT_EQ(effects<RunHook>().size(), 1u);
  EXPECT_EQ(lines(), 1u);
}

}  // namespace
}  // namespace dtrain::node
