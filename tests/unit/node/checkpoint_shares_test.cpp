// Checkpoints whose ranks each wrote to their own host's disk, on several hosts: what is shown of them, and how they come together.
#include "common/transfer/shares.h"
#include "tests/unit/node/checkpoint_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;

class CheckpointSharesTest : public CheckpointsTest {
 protected:
  static transfer::CheckpointInfo share(std::uint64_t place, const std::string& file, bool first, std::int64_t step = 100) {
    transfer::CheckpointInfo info = checkpoint(step, place);
    while (transfer::format_of(info.format).name != "torch-distributed")
      info.format = transfer::FormatId(static_cast<unsigned>(info.format) + 1);
    info.complete = false;
    info.digest = file;
    info.bytes = first ? 20 : 10;
    info.shares.files = {{file, 10, "x"}};
    if (first) info.shares.list = "__0_0.distcp\n__1_0.distcp\n";
    return info;
  }
  void submit_and_write() {
    ASSERT_NO_FATAL_FAILURE(submit());
    write(*ps, share(7, "__0_0.distcp", true));
    write(*other, share(8, "__1_0.distcp", false));
  }
  wire::CheckpointView shown(bool verify = false) {
    House& agent = up();
    (void)agent.ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", verify}, 1000);
    const std::uint64_t request = agent.requests();
    if (verify) run_for(2s);
    const auto seen = agent.answer<wire::CheckpointsReply>(request);
    EXPECT_TRUE(seen && seen->checkpoints.size() == 1);
    return seen && !seen->checkpoints.empty() ? seen->checkpoints.front() : wire::CheckpointView{};
  }
  const std::string& name_of(const House* house) const { return house->started.facts.name; }
};

TEST_F(CheckpointSharesTest, ArePutTogetherOnOneHostAndCopiedToAllWithTasks) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, share(7, "__0_0.distcp", true));
  EXPECT_EQ(shown().state, "incomplete");
  EXPECT_THAT(shown().defect, HasSubstr("__1_0.distcp is missing: "));
  write(*other, share(8, "__1_0.distcp", false));
  EXPECT_EQ(shown().state, "together");
  EXPECT_EQ(shown().defect, ps->started.facts.name + " has __0_0.distcp, " + other->started.facts.name + " has __1_0.distcp");
  restart_ps();
  run_for(60s);
  ASSERT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
  std::size_t with_tasks = 0;
  for (House* house : houses) {
    if (launched(*house, 2) == 0) continue;
    ++with_tasks;
    ASSERT_NE(find(*house, "/ckpt/j/100"), nullptr);
    EXPECT_TRUE(find(*house, "/ckpt/j/100")->complete) << house->started.facts.name;
  }
  EXPECT_EQ(with_tasks, 2u) << where();
  EXPECT_EQ(shown().state, "verified");
  for (House* house : houses) EXPECT_EQ(house->node().own_connections(), 0u) << house->address().ip;
}

TEST_F(CheckpointSharesTest, EachIsVerifiedOnItsHost) {
  ASSERT_NO_FATAL_FAILURE(submit_and_write());
  EXPECT_EQ(shown(true).state, "together");
  rotten = {8};
  const wire::CheckpointView damaged = shown(true);
  EXPECT_EQ(damaged.state, "damaged");
  EXPECT_THAT(damaged.defect, HasSubstr("host " + name_of(other) + ": could not verify /ckpt/j/100: a hash differs"));
  rotten.clear();
  disks[other].clear();
  EXPECT_EQ(shown(true).state, "incomplete");
  EXPECT_THAT(shown(true).defect, HasSubstr("host " + name_of(other) + ": could not verify /ckpt/j/100: it is not there"));
}

TEST_F(CheckpointSharesTest, OnHostsThatAreAwayDoNotCount) {
  ASSERT_NO_FATAL_FAILURE(submit_and_write());
  ASSERT_EQ(shown().state, "together");
  lose(*other);
  run_for(20s);
  EXPECT_EQ(shown().state, "incomplete");
  EXPECT_THAT(shown().defect, HasSubstr(name_of(other) + " (down) has __1_0.distcp"));
  EXPECT_EQ(shown(true).state, "incomplete");
  (void)up().ask<wire::Empty>(MessageType::leave, wire::LeaveRequest{name_of(other)}, 0);
  run_for(5s);
  EXPECT_EQ(shown().state, "incomplete");
  EXPECT_THAT(shown().defect, HasSubstr(name_of(other) + " (gone for good) has __1_0.distcp"));
}

TEST_F(CheckpointSharesTest, AHostThatIsAwayWithOneIsNamedAndWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(submit_and_write());
  lose(*other);
  run_for(40s);
  EXPECT_THAT(described().waiting_for, HasSubstr("a part of its newest checkpoint, of step 100, is on " + name_of(other) +
                                                 " (down): it goes on at once when its agent is started, and waits for that"));
  other->started.life += 1;
  other->start();
  run_for(60s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
}

TEST_F(CheckpointSharesTest, AnOlderCheckpointIsTakenAfterTheWait) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(50, 6));
  write(*ps, share(7, "__0_0.distcp", true));
  write(*other, share(8, "__1_0.distcp", false));
  lose(*other);
  run_for(25s);
  EXPECT_THAT(described().waiting_for, HasSubstr("; it waits 30 s for that and then goes on from step 50"));
  run_for(45s);
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 50);
  EXPECT_TRUE(std::ranges::any_of(up().events(), [&](const auto& e) {
    return e.reason.find("steps 51 to 100 are given up: a part of them is on " + name_of(other)) != std::string::npos;
  }));
}

TEST_F(CheckpointSharesTest, OneThatIsDamagedIsNamedWithItsHost) {
  ASSERT_NO_FATAL_FAILURE(submit_and_write());
  const auto named = [&](const House* house, const std::string& cause) {
    return std::ranges::any_of(up().events(), [&](const auto& e) {
      return e.type == "checkpoint.damaged" && e.message.find("step=100") != std::string::npos &&
             e.reason.find("the share on host " + name_of(house) + " is damaged: ") != std::string::npos &&
             e.reason.find(cause) != std::string::npos;
    });
  };
  garbles = {other};  // it is the other's share that is fetched, since it is the smaller
  restart_ps();
  run_for(60s);
  EXPECT_TRUE(named(other, "a hash differs")) << described().waiting_for;
  EXPECT_FALSE(named(ps, ""));
}

TEST_F(CheckpointSharesTest, OneThatIsDamagedOnItsOwnHostIsNamed) {
  ASSERT_NO_FATAL_FAILURE(submit_and_write());
  rotten = {7};
  restart_ps();
  run_for(60s);
  EXPECT_TRUE(std::ranges::any_of(up().events(), [&](const auto& e) {
    return e.type == "checkpoint.damaged" && e.reason.find("the share on host " + name_of(ps) + " is damaged: ") != std::string::npos;
  })) << described().waiting_for;
}

}  // namespace
}  // namespace dtrain::node
