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

TEST_F(CheckpointSharesTest, EachHostReadsItsOwnInTheBackground) {
  ASSERT_NO_FATAL_FAILURE(submit());
  rotten = {8};
  write(*ps, share(7, "__0_0.distcp", true));
  write(*other, share(8, "__1_0.distcp", false));
  EXPECT_EQ(shown().state, "incomplete");
  EXPECT_TRUE(std::ranges::any_of(up().events(), [&](const auto& e) {
    return e.type == "checkpoint.damaged" &&
           e.reason.find("the share on host " + name_of(other) + " is damaged: could not verify /ckpt/j/100: a hash differs") == 0;
  }));
  const auto verified = [&] { return std::ranges::count_if(up().events(), [](const auto& e) { return e.type == "checkpoint.verified"; }); };
  EXPECT_EQ(verified(), 0);
  disks[other].clear();
  write(*other, share(9, "__1_0.distcp", false));  // its job writes it again
  EXPECT_EQ(shown().state, "together");
  EXPECT_EQ(verified(), 1);
}

TEST_F(CheckpointSharesTest, KeepCountsThoseOfSeveralHostsAsOne) {
  keep = 2;
  ASSERT_NO_FATAL_FAILURE(submit());
  const auto write_one = [&](House& house, std::uint64_t place, const std::string& file, bool first, std::int64_t step) {
    transfer::CheckpointInfo info = share(place, file, first, step);
    info.path = "/ckpt/j/step_" + std::to_string(step);  // otherwise it may be something else of the user's
    write(house, info);
  };
  const auto write_both = [&](std::int64_t step) {
    const auto place = static_cast<std::uint64_t>(step);
    write_one(*ps, place, "__0_0.distcp", true, step);
    write_one(*other, place + 1, "__1_0.distcp", false, step);
  };
  const auto steps = [&](House* house) {
    std::vector<std::int64_t> all;
    for (const auto& info : disks[house]) all.push_back(info.step);
    return all;
  };
  write(*ps, checkpoint(50, 5));
  for (const std::int64_t step : {100, 200}) write_both(step);
  EXPECT_EQ(deleted, std::vector<std::int64_t>{50}) << "one host has it, and it counts beside them";
  rotten = {301};
  write_both(300);
  EXPECT_THAT(deleted, ::testing::ElementsAre(50)) << "one that does not verify counts for nothing";
  write_one(*ps, 350, "__0_0.distcp", true, 350);
  EXPECT_THAT(deleted, ::testing::ElementsAre(50)) << "nor does one that is not whole";
  write_both(400);
  EXPECT_THAT(deleted, ::testing::ElementsAre(50, 100, 100)) << "each host removes its share";
  EXPECT_THAT(steps(ps), ::testing::ElementsAre(400, 350, 300, 200));
  EXPECT_THAT(steps(other), ::testing::ElementsAre(400, 300, 200));
}

// Those that this host asks for, and those of other hosts.
TEST_F(CheckpointSharesTest, NobodyReadsOnForAClientThatWentAway) {
  ASSERT_NO_FATAL_FAILURE(submit_and_write());
  slow = true;
  House& agent = *ps;
  (void)agent.ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", true}, 1000);
  run_for(1s);
  EXPECT_TRUE(reading.size() == 2 && ended.empty()) << reading.size();
  agent.give(ConnectionClosed{agent.requests()});
  run_for(1s);
  EXPECT_TRUE(reading.empty());
  EXPECT_THAT(ended, ::testing::UnorderedElementsAre(ps, other));
  for (House* house : houses) EXPECT_EQ(house->node().own_connections(), 0u);
}

TEST_F(CheckpointSharesTest, NobodyReadsOnForAJobThatIsCancelled) {
  ASSERT_NO_FATAL_FAILURE(submit_and_write());
  slow = true;
  restart_ps();
  run_for(20s);
  ASSERT_EQ(reading.size(), 1u) << "for the restore: " << described().waiting_for;
  House* reader = reading.begin()->first.first;
  wire::ActionRequest cancel;
  cancel.job = "j";
  cancel.action = wire::Action::cancel;
  (void)up().ask<wire::Empty>(MessageType::action, cancel, 1000);
  run_for(2s);
  EXPECT_TRUE(reading.empty());
  EXPECT_THAT(ended, ::testing::ElementsAre(reader));
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
