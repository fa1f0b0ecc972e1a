// Checkpoints of jobs on several hosts: who is asked for them, who is waited for, and how they come to hosts that lack them. The
// agents' part (streams, disks, tasks) is played here, at once and in order.
#include "common/transfer/format.h"
#include "tests/unit/node/checkpoint_town.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;

TEST_F(CheckpointsTest, EveryHostThatRunsItWatchesAndOneVerifies) {
  shared = true;
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(100, 7));
  std::size_t verifications = 0;
  for (House* house : houses)
    for (const Effect& e : house->effects) verifications += std::holds_alternative<VerifyCheckpoint>(e) ? 1 : 0;
  EXPECT_EQ(verifications, 1u);
  EXPECT_EQ(watching, (std::set<House*>{ps, other}));
  const auto seen = up().ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", false}, 1000);
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->checkpoints.size(), 1u);
  EXPECT_EQ(seen->checkpoints.front().state, "verified");
}

TEST_F(CheckpointsTest, WhatTheJobRemovesItselfIsGoneAndNotDamaged) {
  shared = true;
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(100, 7));
  write(*ps, checkpoint(200, 8));
  auto& disk = disks[nullptr];
  std::erase_if(disk, [](const auto& info) { return info.step == 100; });  // rotated away by its program
  for (House* house : watching) house->give(CheckpointsScanned{id(), 0, disk});
  run_for(1s);
  const auto seen = up().ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", false}, 1000);
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->checkpoints.size(), 2u);
  EXPECT_EQ(seen->checkpoints[0].state, "deleted");
  EXPECT_EQ(seen->checkpoints[1].state, "verified");
  // Put there again it counts again.
  write(*ps, checkpoint(100, 7));
  const auto again = up().ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", false}, 1000);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->checkpoints[0].state, "verified");
}

TEST_F(CheckpointsTest, FilesInNoKnownFormatAreSaid) {
  ASSERT_NO_FATAL_FAILURE(submit());
  for (int i = 0; i < 2; ++i) ps->give(CheckpointsScanned{id(), 0, std::vector<transfer::CheckpointInfo>{}, "3 files such as a.pt"});
  run_for(1s);
  const auto seen = up().ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", false}, 1000);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->unrecognised, "3 files such as a.pt");
  EXPECT_TRUE(seen->checkpoints.empty());
}

TEST_F(CheckpointsTest, WhatASaveMayHaveLeftIsSaidBeforeTasksBegin) {
  left = "checkpoint-5 in /ckpt has no trainer_state.json";
  ASSERT_NO_FATAL_FAILURE(submit());
  run_for(1s);
  const auto seen = up().ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", false}, 1000);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->unrecognised, left);
  EXPECT_EQ(std::ranges::count_if(up().events(), [](const auto& e) { return e.type == "checkpoint.unrecognised"; }), 1);
}

// Older programs could not read of it, and would stop there. And what may be something else of the user's is never removed.
TEST_F(CheckpointsTest, FormatThatCameLaterIsFoundOnceAllProgramsKnowIt) {
  keep = 1;
  ASSERT_NO_FATAL_FAILURE(submit());
  const auto torch = [](std::int64_t step, std::uint64_t place, const std::string& name) {
    transfer::CheckpointInfo info = checkpoint(step, place);
    info.format = transfer::FormatId(2);
    info.path = "/ckpt/j/" + name;
    return info;
  };
  write(*ps, torch(100, 7, "ckpt_100.pt"));
  write(*ps, torch(0, 8, "best.pt"));
  write(*ps, torch(200, 9, "ckpt_200.pt"));
  run_for(1s);
  const bool known = cluster::kNewestVersion >= since_version(transfer::FormatId(2));
  const auto seen = up().ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", false}, 1000);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->checkpoints.size(), known ? 3u : 0u);
  EXPECT_EQ(deleted, known ? std::vector<std::int64_t>{100} : std::vector<std::int64_t>{});
}

// Whoever coordinates: it is on no host of the job.
TEST_F(CheckpointsTest, FromASharedDirectoryItGoesOnElsewhereWhenAHostIsLost) {
  shared = true;
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(100, 7));
  lose(*ps);
  run_for(40s);
  const auto d = described();
  EXPECT_EQ(d.job.state, "Running") << d.waiting_for;
  EXPECT_EQ(d.restored.value_or(wire::RestoredView{}).step, 100);
  EXPECT_EQ(where().find("@" + ps->started.facts.name), std::string::npos) << where();
  EXPECT_TRUE(sent.empty()) << "it is there";
}

// What `run` shows. While a job waited for its next generation, it said what the last one had restored.
TEST_F(CheckpointsTest, WhoWatchesIsToldWhatTheGenerationThatRunsRestored) {
  shared = true;
  ASSERT_NO_FATAL_FAILURE(submit());
  const auto restored = [&]() -> std::int64_t {
    wire::WatchRequest query;
    query.job = "j";
    const auto update = up().ask<wire::JobUpdate>(MessageType::watch, query);
    return update && update->restored ? update->restored->step : -1;
  };
  write(*ps, checkpoint(100, 7));
  EXPECT_EQ(restored(), -1) << "it began without one";
  lose(*ps);
  run_for(40s);
  EXPECT_EQ(restored(), 100);
  wire::ActionRequest restart;
  restart.action = wire::Action::restart;
  restart.job = "j";
  (void)houses[0]->ask<wire::Empty>(MessageType::action, restart, 1000);
  run_for(1s);
  EXPECT_EQ(restored(), -1) << described().job.state;
}

TEST_F(CheckpointsTest, AHostThatLacksItIsGivenACopyBeforeItsTaskBegins) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));  // the worker's host has it
  breaks_after = 3;
  garbles = {other};
  lose(*ps);
  run_for(60s);
  const auto d = described();
  ASSERT_EQ(d.job.state, "Running") << d.waiting_for;
  EXPECT_EQ(d.restored.value_or(wire::RestoredView{}).step, 100);
  ASSERT_GE(sent.size(), 2u);
  EXPECT_TRUE(std::ranges::any_of(sent, [](const auto& s) { return s.second == 2 * kChunk; })) << "a stream goes on where one broke";
  std::size_t elsewhere = 0;
  for (House* house : houses)
    if (house != ps && house != other && launched(*house, 2) > 0) {
      ++elsewhere;
      ASSERT_NE(find(*house, "/ckpt/j/100"), nullptr);
      EXPECT_EQ(house->log.count("checkpoint.copied"), 1u);
    }
  EXPECT_GE(elsewhere, 1u) << where();
  for (House* house : houses)
    if (house->runs()) {
      EXPECT_EQ(house->node().own_connections(), 0u) << house->address().ip;
    }
}

// Others may write to checkpoint.dir, but what the job file names is for its user to decide.
TEST_F(CheckpointsTest, NoLinkBelowTheDirectoryIsFollowedWhenItIsRead) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  lose(*ps);
  run_for(60s);
  ASSERT_FALSE(sent.empty()) << where();
  using ::testing::ElementsAre;
  using ::testing::Pair;
  EXPECT_THAT(read_below, ElementsAre(Pair("/ckpt/j/100", ElementsAre("/ckpt/j"))));
}

TEST_F(CheckpointsTest, TheCheckpointThatTheJobFileNamesMayBeALink) {
  restore = "/ckpt/j/best";
  auto named = checkpoint(100, 7);
  named.path = restore;
  disks[houses[0]] = {named};
  ASSERT_NO_FATAL_FAILURE(submit());
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
  ASSERT_FALSE(sent.empty()) << where();
  EXPECT_EQ(read_below[restore], std::set<std::string>{restore});
}

// Seeds 251 and 349 of three hosts: the copy that lay on a host of the next generation was not the one that had been verified.
TEST_F(CheckpointsTest, AnOwnCopyThatDecayedIsFetchedAnew) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  for (House* house : houses)
    if (house != other) disks[house] = {checkpoint(100, 8)};
  rotten = {8};
  lose(*ps);
  run_for(60s);
  const auto d = described();
  ASSERT_EQ(d.job.state, "Running") << d.waiting_for;
  EXPECT_EQ(d.restored.value_or(wire::RestoredView{}).step, 100);
  std::size_t elsewhere = 0;
  for (House* house : houses)
    if (house != ps && house != other && launched(*house, 2) > 0) {
      ++elsewhere;
      ASSERT_NE(find(*house, "/ckpt/j/100"), nullptr);
      EXPECT_FALSE(rotten.contains(find(*house, "/ckpt/j/100")->place)) << house->started.facts.name;
    }
  EXPECT_GE(elsewhere, 1u) << where();
}

TEST_F(CheckpointsTest, AnOwnCopyThatVerifiesIsNotFetched) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  for (House* house : houses)
    if (house != other) disks[house] = {checkpoint(100, 8)};
  lose(*ps);
  run_for(60s);
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100) << described().waiting_for;
  EXPECT_TRUE(sent.empty());
}

TEST_F(CheckpointsTest, AFullDiskFailsTheStagingAndSaysSoAndTheJobGoesWhereThereIsRoom) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  for (House* house : houses)
    if (house != other) full.insert(house);
  lose(*ps);
  run_for(60s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
  const std::string there = "@" + other->started.facts.name + " ";
  EXPECT_EQ(where(), "ps-0" + there + "worker-0" + there) << "the only one with room for a copy, which it has";
  EXPECT_TRUE(std::ranges::any_of(up().events(), [](const auto& e) {
    return e.type == "task.stage-failed" && e.reason.find("No space left on device") != std::string::npos;
  }));
}

TEST_F(CheckpointsTest, ANewerOneOnALostHostIsWaitedForThenTheNextOlderIsTaken) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  write(*ps, checkpoint(200, 8));
  lose(*ps);
  run_for(40s);
  const std::string lost = ps->started.facts.name;
  EXPECT_THAT(described().waiting_for,
              HasSubstr("its newest checkpoint, of step 200, is on " + lost + " (down) only: it waits 30 s for that"));
  EXPECT_THAT(described().waiting_for, HasSubstr("goes on from step 100"));
  run_for(45s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
  bool named = false;
  for (const auto& e : described().events)
    named = named || e.reason.find("steps 101 to 200 are given up: they are on " + lost) != std::string::npos;
  EXPECT_TRUE(named);
}

TEST_F(CheckpointsTest, WhereOnlyALostHostHasOneItIsWaitedForUntilItIsBack) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(200, 8));
  lose(*ps);
  run_for(120s);
  EXPECT_THAT(described().waiting_for, HasSubstr("its newest checkpoint, of step 200, is on " + ps->started.facts.name + " (down) only"));
  EXPECT_THAT(described().waiting_for, HasSubstr("dtrainctl restart j --from-scratch gives up what was trained"));
  ps->started.life += 1;
  ps->start();
  run_for(60s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 200);
}

TEST_F(CheckpointsTest, WhatIsDamagedOnOneHostIsTakenFromAnother) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  write(*ps, checkpoint(100, 8));
  rotten = {7};
  lose(*houses[0]);  // another coordinates
  run_for(20s);
  restart_ps();
  run_for(30s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
}

// Only damage condemns a copy: for all who see it.
TEST_F(CheckpointsTest, AnOwnCopyThatCannotBeReadIsNotSetAside) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  for (House* house : houses) {
    if (house == other) continue;
    disks[house] = {checkpoint(100, 8)};
    unreadable.insert(house);
  }
  lose(*ps);
  run_for(70s);
  EXPECT_THAT(described().job.reason, HasSubstr("Input/output error"));
  EXPECT_TRUE(moved.empty());
  unreadable.clear();
  run_for(60s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
}

TEST_F(CheckpointsTest, ADiskThatCannotReadOnAnotherHostIsTriedNotForEver) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  write(*ps, checkpoint(200, 8));
  unreadable = {ps};
  lose(*houses[0]);  // another coordinates
  run_for(20s);
  restart_ps();
  run_for(60s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
}

TEST_F(CheckpointsTest, ADiskThatHangsIsNamedAndNotWaitedForByAJobThatBegins) {
  hung = {houses[0], houses[1], houses[2], houses[3]};
  hung.erase(houses[1]);
  ASSERT_NO_FATAL_FAILURE(begin_submit());
  run_for(15s);
  EXPECT_THAT(described().waiting_for, HasSubstr("checkpoints are looked for on n1 and n3 and n4: its directory there is being read"));
  run_for(180s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
}

TEST_F(CheckpointsTest, WhatWasLeftBehindKeepsNothing) {
  keep = 3;
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*other, checkpoint(100, 7));
  write(*ps, checkpoint(1100, 8));
  write(*ps, checkpoint(1200, 9));
  lose(*ps);
  run_for(120s);
  ASSERT_EQ(described().job.state, "Running") << described().waiting_for;
  ASSERT_EQ(described().restored.value_or(wire::RestoredView{}).step, 100);
  ASSERT_FALSE(watching.empty());
  House& writer = **watching.begin();
  for (std::int64_t step : {110, 120, 130}) write(writer, checkpoint(step, 20 + static_cast<std::uint64_t>(step)));
  EXPECT_TRUE(deleted.empty()) << deleted.front() << " is deleted for those that were left behind on a host that is away";
  write(writer, checkpoint(140, 99));
  EXPECT_EQ(deleted, std::vector<std::int64_t>{110}) << "the first is what tasks read";
}

// World cluster, three hosts, seed 596 with quorum-lost: the entry that said that a task began was lost, so what it had written was taken
// for older than the job, and training began from scratch. The same where its host died before it could say so.
TEST_F(CheckpointsTest, WhatATaskWroteWhoseStartNobodyHeardOfIsTheJobs) {
  for (const char* drained : {"n1", "n2"}) drain(drained, true);
  cut_off_at_start = "worker";
  ASSERT_NO_FATAL_FAILURE(begin_submit());
  ASSERT_EQ(town.beyond.size(), 1u);
  House& house = **std::ranges::find_if(houses, [&](House* h) { return town.beyond.contains(h); });
  disks[&house] = {checkpoint(200, 8)};
  task::FoundShim shim;
  shim.id = {id(), 1, {"worker", 0}};
  shim.shim_alive = true;
  shim.attempt = 1;
  shim.exit = job::Exit{};
  shim.exit->signal = 9;
  cut_off_at_start.clear();
  lose(house);
  town.beyond.clear();
  ++house.started.life;
  house.started.shims = {shim};
  house.start();
  run_for(30s);
  ps = &house == houses[3] ? houses[2] : houses[3];
  restart_ps();
  run_for(60s);
  EXPECT_EQ(described().job.state, "Running") << described().waiting_for;
  EXPECT_EQ(described().job.generation, 2u);
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 200);
}

// World cluster, three hosts, seeds 8182 and 18110: it was taken for another job's, and the next generation began from an older one.
TEST_F(CheckpointsTest, WhoIsAddedToAGenerationFindsWhatItWroteInASharedDirectory) {
  shared = dynamic_worker = true;
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(100, 7));
  disks[nullptr].insert(disks[nullptr].begin(), checkpoint(200, 8));  // of which nobody could tell
  wire::ActionRequest scale;
  scale.action = wire::Action::scale;
  scale.job = "j";
  scale.role = "worker";
  scale.replicas = 2;
  (void)houses[0]->ask<wire::Empty>(MessageType::action, scale, 1000);
  run_for(10s);
  ASSERT_EQ(described().waiting_for, "");
  ASSERT_EQ(described().job.generation, 1u);
  ASSERT_EQ(watching.size(), 3u) << where();
  EXPECT_EQ(wrote(200), 1u);
}

// Seed 15151: it was taken for the last one's, and a branch that had been left behind was restored.
TEST_F(CheckpointsTest, WhoWasAwayOverAGenerationTellsWhatItWroteBefore) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(100, 7));
  lose(*other);
  disks[other].push_back(checkpoint(150, 8));  // of which nobody could tell
  run_for(60s);
  ASSERT_EQ(described().job.state, "Running") << described().waiting_for;
  ASSERT_EQ(described().job.generation, 2u);
  write(*ps, checkpoint(200, 9));
  other_returns_and_runs_it();
  ASSERT_EQ(described().job.state, "Running") << described().waiting_for;
  ASSERT_EQ(described().job.generation, 3u) << where();
  ASSERT_TRUE(watching.contains(other)) << where();
  EXPECT_EQ(wrote(150), 1u);
}

// A script that goes on from the newest checkpoint that it sees would go on from a branch that was given up, or fail on what a broken save
// left.
TEST_F(CheckpointsTest, WhoReturnsHasWhatItWroteMovedAwayBeforeItRunsTheJobAgain) {
  ASSERT_NO_FATAL_FAILURE(submit());
  write(*ps, checkpoint(100, 7));
  lose(*other);
  disks[other].push_back(checkpoint(250, 8));
  disks[other].push_back(checkpoint(260, 10));
  disks[other].back().complete = false;
  run_for(60s);
  ASSERT_EQ(described().job.generation, 2u) << described().waiting_for;
  write(*ps, checkpoint(200, 9));
  other_returns_and_runs_it();
  ASSERT_EQ(described().job.generation, 3u) << where() << described().waiting_for;
  ASSERT_TRUE(watching.contains(other)) << where();
  EXPECT_EQ(described().restored.value_or(wire::RestoredView{}).step, 200);
  EXPECT_EQ(moved, std::set<House*>{other});
  EXPECT_THAT(disks[other], ::testing::Not(::testing::Contains(::testing::Field(&transfer::CheckpointInfo::step, ::testing::Gt(200)))));
}

TEST_F(CheckpointsTest, OnlyOtherAgentsMayAsk) {
  const auto reply = houses[0]->ask<wire::CheckpointAnswer>(MessageType::ask_checkpoint, wire::CheckpointQuestion{}, 0);
  ASSERT_FALSE(reply);
  EXPECT_THAT(reply.error().message, HasSubstr("only other agents may ask it"));
  EXPECT_FALSE(houses[0]->ask<wire::CheckpointFiles>(MessageType::get_checkpoint, wire::GetCheckpointRequest{}, 0));
}

}  // namespace
}  // namespace dtrain::node
