#include "agent/proc/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/base/small_file.h"

namespace dtrain::proc {
namespace {

// An agent and its shim were killed while the task was frozen, and so was the task. Its successor must not be born frozen.
TEST(Cgroup, WhatIsLeftOfAnEarlierLifeIsNotUsedAgain) {
  const Cgroups cgroups = Cgroups::open("", "dtrain-test-" + std::to_string(::getpid()));
  const auto first = cgroups.create("1.1.worker-0", 0);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->v2.empty(), cgroups.v2().empty());
  if (first->v2.empty()) return;  // no writable cgroup v2 here: nothing can be left
  const std::string freeze = first->v2 + "/task/cgroup.freeze";
  ASSERT_TRUE(write_control(freeze, "1"));
  const auto second = cgroups.create("1.1.worker-0", 0);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->v2, first->v2);
  EXPECT_EQ(read_small_file(freeze), "0\n");
  cgroup_remove(*second);
}

// dtraind.service: tasks go below another unit's group, so that what systemd does to the agent's does nothing to them.
TEST(Cgroup, TasksGoBelowTheGroupThatIsNamed) {
  const Cgroups own = Cgroups::open("", "dtrain-test-" + std::to_string(::getpid()));
  if (own.v2().empty()) return;  // no writable cgroup v2 here
  // The hierarchy's mount point is what is left of our path without our place in it.
  std::string place = read_small_file("/proc/self/cgroup").value_or("");
  place = place.substr(place.find("0::") + 3);
  place = place.substr(0, place.find('\n'));
  const std::string parent = (place == "/" ? "" : place) + "/" + own.v2().substr(own.v2().rfind('/') + 1);
  {
    const Cgroups below = Cgroups::open(parent, "tasks");
    EXPECT_EQ(below.v2(), own.v2() + "/tasks");
    const auto made = below.create("1.1.worker-0", 0);
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(made->v2, own.v2() + "/tasks/1.1.worker-0");
    cgroup_remove(*made);
    EXPECT_EQ(below.shims(), own.v2() + "/tasks/shims/shim");
    // The unit was begun anew beside the agent, and its group with it.
    for (const char* left : {"/shims/shim", "/shims", ""}) ASSERT_EQ(::rmdir((below.v2() + left).c_str()), 0);
    const auto again = below.create("1.1.worker-0", 0);
    ASSERT_TRUE(again.has_value());
    EXPECT_TRUE(read_small_file(below.shims() + "/cgroup.procs").has_value());
    EXPECT_TRUE(read_small_file(again->v2 + "/task/cgroup.procs").has_value());
    cgroup_remove(*again);
  }
  EXPECT_FALSE(own.unusable());
  const Cgroups absent = Cgroups::open(parent + "/absent", "tasks");  // not made: it would be nobody's
  EXPECT_EQ(absent.v2(), "");
  ASSERT_TRUE(absent.unusable());
  EXPECT_NE(absent.unusable()->message.find("/absent: No such file or directory"), std::string::npos) << absent.unusable()->text();
  EXPECT_NE(absent.unusable()->next, "");
}

}  // namespace
}  // namespace dtrain::proc
