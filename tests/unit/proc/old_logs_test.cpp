#include "agent/proc/old_logs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace dtrain::proc {
namespace {

namespace fs = std::filesystem;

class OldLogs : public ::testing::Test {
 protected:
  OldLogs() {
    char name[] = "/tmp/old-logs-XXXXXX";
    tasks = ::mkdtemp(name);
  }
  ~OldLogs() override { fs::remove_all(tasks); }
  // Written last at that second.
  void log(const std::string& assignment, int number, time_t at) {
    fs::create_directories(tasks + "/" + assignment);
    for (const char* end : {"", ".idx"}) {
      const std::string path = tasks + "/" + assignment + "/log." + std::to_string(number) + end;
      std::ofstream(path) << "text";
      const timespec times[2] = {{at, 0}, {at, 0}};
      ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    }
  }
  bool there(const std::string& path) const { return fs::exists(tasks + "/" + path); }
  std::string tasks;
};

TEST_F(OldLogs, WhatWasWrittenBeforeGoesAndWhatIsBeingWrittenStays) {
  log("7.1.worker-0", 0, 100);
  log("7.1.worker-0", 1, 300);
  log("8.2.ps-0", 0, 100);
  log("8.2.ps-0", 1, 150);
  const AssignmentId lives{8, 2, {"ps", 0}};
  EXPECT_EQ(remove_old_logs(tasks, WallTime(std::chrono::seconds(200)), {lives}), 2u);
  EXPECT_FALSE(there("7.1.worker-0/log.0") || there("7.1.worker-0/log.0.idx"));
  EXPECT_TRUE(there("7.1.worker-0/log.1") && there("7.1.worker-0/log.1.idx")) << "it is young enough";
  EXPECT_FALSE(there("8.2.ps-0/log.0"));
  EXPECT_TRUE(there("8.2.ps-0/log.1")) << "its task lives and may write to it";
  EXPECT_EQ(remove_old_logs(tasks, WallTime(std::chrono::seconds(200)), {}), 1u);
  EXPECT_FALSE(there("8.2.ps-0/log.1"));
  EXPECT_TRUE(there("8.2.ps-0")) << "its other records are not logs";
}

}  // namespace
}  // namespace dtrain::proc
