#include "agent/proc/scheduling.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

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

}  // namespace
}  // namespace dtrain::proc
