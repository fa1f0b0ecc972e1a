// Which tasks of a host have which CPUs, while they come, fail, end and are found again.
#include "common/task/bound_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/task/tasks_world.h"

namespace dtrain::task {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<HostCpu> kFour = {{0, 0, 0}, {1, 1, 0}, {2, 2, 1}, {3, 3, 1}};  // two nodes, no hyperthreads

ShimSpec asks(std::uint32_t index, std::uint64_t millis) {
  ShimSpec spec;
  spec.id = {1, 1, {"worker", index}};
  spec.cpu_millis = millis;
  return spec;
}

TEST(BoundTasks, NobodyGetsWhatAnotherOneHas) {
  BoundTasks bound(kFour);
  ShimSpec a = asks(0, 1000), b = asks(1, 2000), c = asks(2, 2000);
  EXPECT_EQ(bound.bind(a, {}), "");
  EXPECT_EQ(bound.bind(b, {1}), "");
  EXPECT_THAT(a.cpus, ElementsAre(0));
  EXPECT_EQ(a.numa_node, 0);
  EXPECT_THAT(b.cpus, ElementsAre(2, 3));
  EXPECT_EQ(bound.bind(c, {}), "it asks for 2 CPUs, and 1 of 4 are nobody's");
  EXPECT_THAT(c.cpus, IsEmpty());
  bound.release(b.id);
  EXPECT_EQ(bound.bind(c, {}), "");
  EXPECT_THAT(c.cpus, ElementsAre(2, 3));
}

TEST(BoundTasks, LaunchedAgainItDoesNotStandInItsOwnWay) {
  BoundTasks bound(kFour);
  ShimSpec a = asks(0, 4000);
  bound.bind(a, {});
  EXPECT_EQ(bound.bind(a, {}), "");
  EXPECT_EQ(a.cpus.size(), 4u);
  EXPECT_EQ(a.numa_node, -1) << "of both nodes";
}

// And what a spec said before is not left in it.
TEST(BoundTasks, APartOfACpuIsNobodysOwn) {
  BoundTasks bound(kFour);
  ShimSpec a = asks(0, 1500), b = asks(1, 4000);
  a.cpus = {1};
  a.numa_node = 1;
  EXPECT_EQ(bound.bind(a, {1}), "");
  EXPECT_THAT(a.cpus, IsEmpty());
  EXPECT_EQ(a.numa_node, -1);
  EXPECT_EQ(bound.bind(b, {}), "");
  EXPECT_EQ(b.cpus.size(), 4u);
}

TEST(BoundTasks, WhatWasFoundIsTaken) {
  BoundTasks bound(kFour);
  bound.found({7, 2, {"ps", 0}}, {1, 2, 9});  // 9 has been taken offline since
  ShimSpec a = asks(0, 2000);
  EXPECT_EQ(bound.bind(a, {}), "");
  EXPECT_THAT(a.cpus, ElementsAre(0, 3));
  EXPECT_EQ(a.numa_node, -1);
}

TEST(BoundTasks, WhereNothingIsKnownNothingIsSaid) {
  BoundTasks bound({});
  ShimSpec a = asks(0, 2000);
  EXPECT_EQ(bound.bind(a, {0}), "");
  EXPECT_THAT(a.cpus, IsEmpty());
}

// ---------------------------------------------------------------- in the course of a task

class BoundCourse : public Tasks {
 protected:
  BoundCourse() { spec().roles["worker"].resources.cpu_millis = 2000; }
  // What it is launched with, beside all that were ordered before.
  std::vector<std::uint32_t> launch(const TaskOrder& task) {
    did_.cpus.clear();
    orders_.push_back(task);
    bound_host_.update(now_, {1, {}, orders_});
    bound_host_.find(task.id)->staged(std::string("/w"));
    return did_.cpus;
  }
  FoundShim found(std::uint32_t index, std::vector<std::uint32_t> cpus) const {
    FoundShim f;
    f.id = {1, 1, {"worker", index}};
    f.shim_alive = f.running = true;
    f.attempt = 1;
    f.pid = 50;
    f.cpus = std::move(cpus);
    return f;
  }
  std::vector<TaskOrder> orders_;
  Assignments bound_host_{HostContext{"n1", "", {}, 10s, false, kFour}, did_};
};

TEST_F(BoundCourse, FromItsLaunchUntilItsShimIsGone) {
  EXPECT_THAT(launch(order(0)), ElementsAre(0, 1));
  EXPECT_THAT(launch(order(1)), ElementsAre(2, 3));
  // A launch that came to nothing gives them back.
  bound_host_.find(order(1).id)->shim_up(now_, fail(ErrorCode::io, "could not launch"));
  EXPECT_THAT(launch(order(1, 2)), ElementsAre(2, 3));
  // An exit and the next attempt change nothing.
  Task& first = *bound_host_.find(order(0).id);
  first.shim_up(now_, {});
  first.attempt_started(now_, 1, 100, WallTime{});
  first.attempt_exited(now_, 1, died(1));
  first.attempt_started(now_, 2, 101, WallTime{});
  did_.take();
  EXPECT_THAT(launch(order(1, 3)), IsEmpty());
  EXPECT_THAT(did_.take(), testing::Contains("unbound worker-1"));
  // The shim's death does.
  bound_host_.shim_gone(now_, order(0).id);
  EXPECT_THAT(launch(order(1, 4)), ElementsAre(0, 1));
}

TEST_F(BoundCourse, OneThatIsFoundKeepsThem) {
  bound_host_.adopt({found(0, {2, 3})});
  orders_ = {order(0)};
  EXPECT_THAT(launch(order(1)), ElementsAre(0, 1));
}

// Nobody ordered it: it is being ended, and has them until it is gone.
TEST_F(BoundCourse, OneThatIsUnwantedKeepsThemToItsEnd) {
  FoundShim stray = found(0, {0, 1, 2}), dead = found(1, {3});
  stray.id.job = dead.id.job = 9;
  dead.shim_alive = dead.running = false;
  bound_host_.adopt({stray, dead});
  bound_host_.finish_adoption();
  EXPECT_THAT(launch(order(0)), IsEmpty());
  bound_host_.shim_gone(now_, stray.id);
  EXPECT_THAT(launch(order(1)), ElementsAre(0, 1));
}

TEST_F(BoundCourse, TheRuleCanBeBroken) {
  bound_host_.broken_rule = "own-cpus";
  for (const std::uint32_t index : {0u, 1u}) EXPECT_THAT(launch(order(index)), ElementsAre(0, 1));
}

}  // namespace
}  // namespace dtrain::task
