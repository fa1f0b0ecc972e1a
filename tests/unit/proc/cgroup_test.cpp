#include "agent/proc/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/proc/small_file.h"

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

}  // namespace
}  // namespace dtrain::proc
