#include "tests/conformance/standby_suite.h"

#include <signal.h>
#include <sys/syscall.h>

#include "agent/proc/cgroup.h"
#include "agent/proc/launch_file.h"
#include "agent/proc/spare_shims.h"

namespace dtrain::conformance {

namespace {

using News = node::StandbyReport::News;

constexpr const char* kScript =
    "import sys\n"
    "warm = 'json' in sys.modules\n"
    "import json, os, signal\n"
    "name = 'said.%s.%s' % (os.environ['GENERATION'], os.environ['DTRAIN_ATTEMPT'])\n"
    "with open(name + '.new', 'w') as file: file.write('warm' if warm else 'cold')\n"
    "os.rename(name + '.new', name)\n"
    "signal.pause()\n";

}  // namespace

void StandbySuite::SetUp() {
  owned_ = GetParam().make();
  world_ = dynamic_cast<DirectWorld*>(owned_.get());
  ASSERT_NE(world_, nullptr);
  (void)world_->runner().list();
  std::ofstream(world_->work() + "/train.py") << kScript;
}

void StandbySuite::TearDown() {
  for (const AssignmentId& id : std::set(launched_)) end(id);
}

int StandbySuite::count(News news) const {
  return static_cast<int>(std::ranges::count_if(events_, [&](const node::Event& event) {
    const auto* report = std::get_if<node::StandbyReport>(&event);
    return report != nullptr && report->news == news;
  }));
}

task::ShimSpec StandbySuite::spec(const AssignmentId& id) const {
  task::ShimSpec spec = world_->command(id, {"/usr/bin/python3", "train.py"});
  spec.env["GENERATION"] = std::to_string(id.generation);
  spec.warm = {"json"};
  return spec;
}

void StandbySuite::launch(const task::ShimSpec& spec) {
  launched_.insert(spec.id);
  world_->runner().launch(spec);
  ASSERT_TRUE(pump([&] { return last<node::ShimUp>(spec.id) != nullptr; }));
  const Status& result = last<node::ShimUp>(spec.id)->result;
  ASSERT_TRUE(result) << result.error().text();
}

std::int32_t StandbySuite::start(const AssignmentId& id, AttemptNumber attempt) {
  world_->runner().start(id, attempt);
  const auto started = [&] { return last<node::AttemptStarted>(id); };
  EXPECT_TRUE(pump([&] { return started() != nullptr && started()->attempt == attempt && !said(id, attempt).empty(); }));
  return started() == nullptr ? 0 : started()->pid;
}

void StandbySuite::stand_by(int standbys) {
  EXPECT_TRUE(pump([&] { return count(News::ready) >= standbys || count(News::failed) > 0; }));
  EXPECT_EQ(count(News::failed), 0);
}

void StandbySuite::kill_task(const AssignmentId& id, AttemptNumber attempt) {
  world_->process_dies(id, last<node::AttemptStarted>(id)->pid);
  EXPECT_TRUE(pump([&] { return last<node::AttemptExited>(id) != nullptr && last<node::AttemptExited>(id)->attempt == attempt; }));
}

void StandbySuite::end(const AssignmentId& id) {
  const bool there = launched_.erase(id) > 0;
  ASSERT_TRUE(there);
  world_->runner().end(id);
  EXPECT_TRUE(pump([&] { return last<node::ShimGone>(id) != nullptr; }));
}

std::string StandbySuite::said(const AssignmentId& id, AttemptNumber attempt) const {
  return read_small_file(world_->work() + "/said." + std::to_string(id.generation) + "." + std::to_string(attempt)).value_or("");
}

std::string StandbySuite::standby_of(const AssignmentId& id) const {
  for (const auto& entry : std::filesystem::directory_iterator(world_->directory(id) + "/.."))
    if (entry.path().filename().string().starts_with("standby." + id.text() + ".")) return entry.path().string();
  return "";
}

std::string StandbySuite::cgroup_of(const AssignmentId& id) const {
  const auto launch = proc::read_launch(world_->directory(id));
  return launch ? launch->cgroup : "";
}

TEST_P(StandbySuite, TheNextAssignmentOfTheTaskBeginsInIt) {
  task::ShimSpec one = spec(first_), other = spec(second_);
  one.memory_bytes = other.memory_bytes = 256 << 20;
  launch(one);
  const std::int32_t before = start(first_, 1);
  EXPECT_EQ(said(first_, 1), "cold");
  stand_by(1);
  kill_task(first_, 1);
  const std::string earlier = cgroup_of(first_);
  end(first_);
  EXPECT_TRUE(pump([&] { return !proc::cgroup_populated(earlier); }));
  launch(other);
  const std::int32_t pid = start(second_, 1);
  EXPECT_EQ(said(second_, 1), "warm");
  EXPECT_NE(pid, before);
  EXPECT_TRUE(pump([&] { return count(News::used) == 1; }));
  const std::string groups = read_small_file("/proc/" + std::to_string(pid) + "/cgroup").value_or("");
  EXPECT_NE(groups.find(cgroup_of(second_).substr(cgroup_of(second_).rfind('/'))), std::string::npos) << groups;
  // It is frozen, thawed and killed like any other, and has a standby of its own.
  world_->runner().freeze(second_, true);
  EXPECT_TRUE(pump([&] { return last<node::FreezeDone>(second_) != nullptr; }));
  EXPECT_TRUE(last<node::FreezeDone>(second_)->frozen);
  world_->runner().freeze(second_, false);
  EXPECT_TRUE(pump([&] { return !last<node::FreezeDone>(second_)->frozen; }));
  stand_by(2);
  world_->runner().kill(second_);
  EXPECT_TRUE(pump([&] { return last<node::AttemptExited>(second_) != nullptr; }));
  EXPECT_EQ(last<node::AttemptExited>(second_)->exit.signal, SIGKILL);
}

TEST_P(StandbySuite, TheNextAttemptOfAnAssignmentBeginsInIt) {
  launch(spec(first_));
  start(first_, 1);
  for (AttemptNumber attempt = 2; attempt <= 3; ++attempt) {
    stand_by(static_cast<int>(attempt) - 1);
    kill_task(first_, attempt - 1);
    start(first_, attempt);
    EXPECT_EQ(said(first_, attempt), "warm");
    EXPECT_EQ(last<node::ShimGone>(first_), nullptr);  // whoever ordered the start is not told of shims
  }
  const std::string place = cgroup_of(first_);
  stand_by(3);
  // The next one has another place, and its end is nothing to the task.
  const std::string standby = standby_of(first_);
  const auto its = proc::read_launch(standby);
  const auto state = proc::read_record(standby, "state");
  ASSERT_TRUE(its && state) << standby;
  EXPECT_NE(its->cgroup, place);
  ::kill(state->fixed.shim_pid, SIGKILL);
  EXPECT_TRUE(pump([&] { return !proc::cgroup_populated(its->cgroup); }));
  EXPECT_TRUE(proc::cgroup_populated(place));
  EXPECT_EQ(last<node::AttemptExited>(first_)->attempt, 2u);
  kill_task(first_, 3);
  start(first_, 4);
  EXPECT_EQ(said(first_, 4), "cold");
}

TEST_P(StandbySuite, WhoseShimIsKilledCostsNothing) {
  launch(spec(first_));
  start(first_, 1);
  stand_by(1);
  const std::string directory = standby_of(first_);
  const auto state = proc::read_record(directory, "state");
  ASSERT_TRUE(state);
  const UniqueFd shim(static_cast<int>(::syscall(SYS_pidfd_open, state->fixed.shim_pid, 0)));
  ::kill(state->fixed.shim_pid, SIGKILL);
  // A message to one that dies may seem to arrive; the agent that sent it would then hear that the shim is gone.
  ASSERT_TRUE(pump([&] { return proc::is_dead(shim); }));
  kill_task(first_, 1);
  start(first_, 2);
  EXPECT_EQ(said(first_, 2), "cold");
  EXPECT_EQ(count(News::used), 0);
}

TEST_P(StandbySuite, OneThatDiesWhileItWaitsIsReplaced) {
  launch(spec(first_));
  start(first_, 1);
  stand_by(1);
  const auto its = proc::read_launch(standby_of(first_));
  ASSERT_TRUE(its);
  const int process = std::atoi(read_small_file(its->cgroup + "/task/cgroup.procs").value_or("0").c_str());
  ASSERT_GT(process, 0);
  ::kill(process, SIGKILL);
  EXPECT_TRUE(pump([&] { return count(News::failed) == 1 && count(News::ready) == 2; }));
  kill_task(first_, 1);
  start(first_, 2);
  EXPECT_EQ(said(first_, 2), "warm");
}

TEST_P(StandbySuite, AStartThatIsEndedIsRefusedAndNothingRuns) {
  launch(spec(first_));
  start(first_, 1);
  stand_by(1);
  kill_task(first_, 1);
  world_->runner().start(first_, 2);
  end(first_);
  ASSERT_NE(last<node::AttemptRefused>(first_), nullptr);
  EXPECT_EQ(last<node::AttemptRefused>(first_)->attempt, 2u);
  EXPECT_EQ(last<node::AttemptStarted>(first_)->attempt, 1u);
  launch(world_->command(second_, {"sleep", "1000000"}));  // another program, which the standby is of no use to
  EXPECT_TRUE(pump([&] { return world_->processes(first_) == 0; }));
}

TEST_P(StandbySuite, ItIsGoneWithItsTask) {
  launch(spec(first_));
  start(first_, 1);
  stand_by(1);
  const std::string directory = standby_of(first_);
  const auto its = proc::read_launch(directory);
  ASSERT_TRUE(its);
  EXPECT_TRUE(proc::cgroup_populated(its->cgroup));
  end(first_);
  launch(world_->command(second_, {"sleep", "1000000"}));  // another program
  EXPECT_TRUE(pump([&] { return !proc::cgroup_populated(its->cgroup) && !std::filesystem::exists(directory); }));
}

}  // namespace dtrain::conformance
