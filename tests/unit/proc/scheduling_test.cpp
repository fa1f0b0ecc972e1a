#include "agent/proc/scheduling.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "agent/base/small_file.h"
#include "agent/proc/helper_program.h"

namespace dtrain::proc {
namespace {

// What an agent does beside its own work (unpacking, removing a job's files) delays no other program of the host.
TEST(Scheduling, AHelperOfAnUrgentProcessIsNotUrgent) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  become_urgent();  // without the right to it nothing changes, and nothing is shown
  const auto helper = run_helper({{"sh", "-c", "nice >&2"}, std::nullopt, -1});
  ::setpriority(PRIO_PROCESS, 0, before);
  ASSERT_TRUE(helper.has_value());
  EXPECT_EQ(helper->errors, std::to_string(std::max(0, before)));
}

// The service has OOMScoreAdjust=-500: when memory is short the agent is to outlive what it started.
TEST(Scheduling, AHelperOfASparedProcessIsNotSpared) {
  const std::string own = "/proc/self/oom_score_adj";
  const std::string before = read_small_file(own).value_or("0\n");
  write_control(own, "-500");  // without the right to it nothing changes, and nothing is shown
  const auto helper = run_helper({{"sh", "-c", "cat /proc/self/oom_score_adj >&2"}, std::nullopt, -1});
  write_control(own, before);
  ASSERT_TRUE(helper.has_value());
  EXPECT_EQ(helper->errors, before.starts_with("-") ? "0" : before.substr(0, before.find('\n')));
}

}  // namespace
}  // namespace dtrain::proc
