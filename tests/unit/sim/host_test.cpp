// The fakes behave: the disk keeps prefixes, shims outlive the agent, attempts are started once.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/sim/sim_checkpoints.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_runner.h"

namespace dtrain::sim {
namespace {

struct Inbox {
  std::vector<node::Event> events;
  std::function<void(node::Event)> post() {
    return [this](node::Event e) { events.push_back(std::move(e)); };
  }
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& e : events)
      if (const auto* t = std::get_if<T>(&e)) out.push_back(*t);
    return out;
  }
};

void run_until(Timeline& timeline, Duration when) {
  while (timeline.next() <= Instant{} + when) timeline.run_next();
  timeline.advance_to(Instant{} + when);
}

TEST(Timeline, RunsInOrderOfTimeThenOfAsking) {
  Timeline timeline;
  std::string order;
  timeline.after(2s, [&] { order += 'c'; });
  timeline.after(1s, [&] { order += 'a'; });
  timeline.after(1s, [&] { order += 'b'; });
  run_until(timeline, 3s);
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(timeline.now(), Instant{} + 3s);
  EXPECT_EQ(timeline.next(), kNever);
}

TEST(HostClock, RebootStartsBootTimeAnewAndKeepsTheWallClock) {
  HostClock clock;
  const Now before = clock.read(Instant{} + 100s);
  EXPECT_EQ(before.boot, Instant{} + 100s);
  clock.reboot(Instant{} + 100s);
  const Now after = clock.read(Instant{} + 101s);
  EXPECT_EQ(after.boot, Instant{} + 1s);
  EXPECT_EQ(after.wall - before.wall, 1s);
  EXPECT_EQ(clock.to_world(after.boot), Instant{} + 101s);
  EXPECT_EQ(clock.to_world(kNever), kNever);
}

class Disk : public testing::Test {
 protected:
  node::Persist entry(std::uint64_t index) {
    node::Persist p;
    p.ticket = index;
    p.append.push_back({index, 1, "payload"});
    p.put_task_records["t"] = std::to_string(index);
    return p;
  }
  Timeline timeline;
  Inbox inbox;
  std::vector<std::string> complaints;
  SimDisk disk{timeline, Rng(7), inbox.post(), [this](std::string what) { complaints.push_back(std::move(what)); }};
};

TEST_F(Disk, CommitsInOrderAndAnswersEachOnce) {
  for (std::uint64_t i = 1; i <= 5; ++i) disk.perform(entry(i));
  EXPECT_FALSE(disk.idle());
  run_until(timeline, 1s);
  EXPECT_TRUE(disk.idle());
  const auto done = inbox.all<node::Persisted>();
  ASSERT_EQ(done.size(), 5u);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(done[i].ticket, i + 1);
  EXPECT_EQ(disk.stored().replica.log.size(), 5u);
  EXPECT_EQ(disk.stored().task_records.at("t"), "5");
}

TEST_F(Disk, ACrashLeavesAPrefixWithEveryAnsweredCommit) {
  for (std::uint64_t i = 1; i <= 50; ++i) disk.perform(entry(i));
  run_until(timeline, 20ms);
  const std::size_t answered = inbox.all<node::Persisted>().size();
  disk.agent_died();
  run_until(timeline, 1s);
  EXPECT_EQ(inbox.all<node::Persisted>().size(), answered);  // nobody is told any more
  EXPECT_GE(disk.stored().replica.log.size(), answered);
  for (std::size_t i = 0; i < disk.stored().replica.log.size(); ++i) EXPECT_EQ(disk.stored().replica.log[i].index, i + 1);
}

TEST_F(Disk, AfterAFailureNothingIsWrittenUntilTheAgentStartsAgain) {
  disk.set_full(true);
  disk.perform(entry(1));
  run_until(timeline, 1s);
  disk.set_full(false);
  disk.perform(entry(2));
  run_until(timeline, 2s);
  EXPECT_EQ(inbox.all<node::PersistFailed>().size(), 2u);
  EXPECT_TRUE(disk.stored().replica.log.empty());
  disk.agent_died();
  disk.perform(entry(1));
  run_until(timeline, 3s);
  EXPECT_EQ(inbox.all<node::Persisted>().size(), 1u);
}

TEST_F(Disk, ASnapshotReplacesWhatItContainsAndGapsAreComplainedOf) {
  for (std::uint64_t i = 1; i <= 3; ++i) disk.perform(entry(i));
  node::Persist snapshot;
  snapshot.ticket = 9;
  snapshot.snapshot = raft::StoredSnapshot{2, 1, "state"};
  disk.perform(snapshot);
  run_until(timeline, 1s);
  ASSERT_EQ(disk.stored().replica.log.size(), 1u);
  EXPECT_EQ(disk.stored().replica.log.front().index, 3u);
  EXPECT_TRUE(complaints.empty());
  disk.perform(entry(5));
  run_until(timeline, 2s);
  EXPECT_EQ(complaints.size(), 1u);
}

class Host : public testing::Test {
 protected:
  const AssignmentId id{1, 1, {"worker", 0}};
  void launch(std::vector<std::string> argv) {
    task::ShimSpec spec;
    spec.id = id;
    spec.argv = std::move(argv);
    runner.perform(node::LaunchShim{spec});
    pass(100ms);
  }
  void start(AttemptNumber n) {
    runner.perform(node::StartAttempt{id, n});
    pass(100ms);
  }
  void pass(Duration d) { run_until(timeline, timeline.now() - Instant{} + d); }
  const SimShim& shim() const { return runner.shims().at(id); }

  Timeline timeline;
  Inbox inbox;
  SimRunner runner{timeline, Rng(3), inbox.post(), {}};
};

TEST_F(Host, RunsAnAttemptToItsEnd) {
  launch({"sim", "run=1000", "ok=0", "code=3"});
  start(1);
  EXPECT_TRUE(shim().running);
  pass(2s);
  const auto exits = inbox.all<node::AttemptExited>();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].exit.code, 3);
  EXPECT_EQ(runner.live_processes(), 0u);
}

TEST_F(Host, StartIsIdempotentAndMonotone) {
  launch({"sim", "forever"});
  start(2);
  start(2);
  start(1);
  start(3);
  EXPECT_EQ(inbox.all<node::AttemptStarted>().size(), 2u);  // the second is the same process
  EXPECT_EQ(inbox.all<node::AttemptStarted>()[0].pid, inbox.all<node::AttemptStarted>()[1].pid);
  EXPECT_EQ(inbox.all<node::AttemptRefused>().size(), 2u);
  runner.perform(node::KillTask{id});
  pass(100ms);
  start(2);  // ended: never again
  EXPECT_EQ(inbox.all<node::AttemptRefused>().size(), 3u);
  start(3);
  EXPECT_TRUE(shim().running);
}

TEST_F(Host, AnUnknownShimRefusesAndEndsAtOnce) {
  start(1);
  runner.perform(node::EndShim{id});
  runner.perform(node::FreezeTask{id, true});
  pass(100ms);
  EXPECT_EQ(inbox.all<node::AttemptRefused>().size(), 1u);
  ASSERT_EQ(inbox.all<node::ShimGone>().size(), 1u);
  EXPECT_TRUE(inbox.all<node::ShimGone>()[0].expected);
  ASSERT_EQ(inbox.all<node::FreezeDone>().size(), 1u);
  EXPECT_FALSE(inbox.all<node::FreezeDone>()[0].result);
}

TEST_F(Host, TheStopSignalIsObeyedOrIgnored) {
  launch({"sim", "forever", "term=500", "term-code=0"});
  start(1);
  runner.perform(node::SignalTask{id, SIGTERM});
  pass(200ms);
  EXPECT_TRUE(shim().running);
  pass(1s);
  ASSERT_TRUE(shim().exit);
  EXPECT_TRUE(shim().exit->success());
}

TEST_F(Host, AFrozenTaskDoesNothingUntilThawed) {
  launch({"sim", "run=1000", "ready=500"});
  start(1);
  runner.perform(node::FreezeTask{id, true});
  pass(5s);
  EXPECT_TRUE(shim().running);
  EXPECT_TRUE(inbox.all<node::Notified>().empty());
  runner.perform(node::FreezeTask{id, false});
  pass(1s);
  EXPECT_EQ(inbox.all<node::Notified>().size(), 1u);
  EXPECT_FALSE(shim().running);
  EXPECT_EQ(inbox.all<node::FreezeDone>().size(), 2u);
}

TEST_F(Host, KillingAShimTakesItsTaskWithIt) {
  launch({"sim", "forever"});
  start(1);
  runner.kill_shim(id);
  ASSERT_EQ(inbox.all<node::AttemptExited>().size(), 1u);
  EXPECT_TRUE(inbox.all<node::AttemptExited>()[0].exit.unknown);
  ASSERT_EQ(inbox.all<node::ShimGone>().size(), 1u);
  EXPECT_FALSE(inbox.all<node::ShimGone>()[0].expected);
  const auto found = runner.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].shim_alive);
  EXPECT_EQ(found[0].attempt, 1u);
}

TEST_F(Host, TasksOutliveTheAgentAndTellWhatHappened) {
  launch({"sim", "run=1000"});
  start(1);
  runner.agent_died();
  inbox.events.clear();
  pass(2s);
  const auto found = runner.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].shim_alive);
  EXPECT_FALSE(found[0].running);
  ASSERT_TRUE(found[0].exit);
  EXPECT_TRUE(found[0].exit->success());
}

TEST_F(Host, ARebootLeavesDirectoriesOnly) {
  launch({"sim", "forever"});
  start(1);
  runner.agent_died();
  runner.host_died();
  EXPECT_EQ(runner.live_processes(), 0u);
  const auto found = runner.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].shim_alive);
  EXPECT_FALSE(found[0].exit);
  EXPECT_TRUE(runner.has_files(1));
  runner.perform(node::RemoveJobFiles{1, node::JobFiles::logs});
  pass(100ms);
  EXPECT_FALSE(runner.has_files(1));
}

TEST(Checkpoints, AreListedNewestFirstVerifiedAndQuarantined) {
  Timeline timeline;
  Inbox inbox;
  SimCheckpoints files(timeline, Rng(5), inbox.post());
  job::CheckpointSpec spec;
  spec.dir = "/ckpt/a";
  files.perform(node::WatchCheckpoints{1, spec, {}, true});
  files.write("/ckpt/a", 1, 1, 100, false, false);
  files.write("/ckpt/a", 1, 1, 200, false, true);
  files.write("/ckpt/a", 1, 1, 300, true, false);
  run_until(timeline, 1s);
  ASSERT_EQ(inbox.all<node::CheckpointsScanned>().size(), 3u);  // unasked, at each change
  files.perform(node::ScanCheckpoints{1, 9, spec, {}});
  run_until(timeline, 2s);
  const auto scan = inbox.all<node::CheckpointsScanned>().back();
  EXPECT_EQ(scan.token, 9u);
  ASSERT_EQ(scan.found->size(), 3u);
  EXPECT_EQ(scan.found->at(0).step, 300);
  EXPECT_FALSE(scan.found->at(0).complete);
  files.perform(node::VerifyCheckpoint{1, 10, scan.found->at(1), {}, {}});
  files.perform(node::VerifyCheckpoint{1, 11, scan.found->at(2), {}, {}});
  files.perform(node::QuarantineCheckpoint{1, 12, scan.found->at(0), {}, spec.dir});
  run_until(timeline, 3s);
  for (const auto& v : inbox.all<node::CheckpointVerified>()) EXPECT_EQ(v.result.has_value(), v.token == 11);
  EXPECT_EQ(files.in("/ckpt/a").size(), 2u);
  files.rot("/ckpt/a", "/ckpt/a/ckpt-100");
  EXPECT_FALSE(files.in("/ckpt/a").back().good);
}

}  // namespace
}  // namespace dtrain::sim
