// A shim that systemd starts later than anybody waited for it: it must leave what is another's by then.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "agent/base/boot_clock.h"
#include "agent/base/unique_fd.h"
#include "agent/dtrain-shim/protocol.h"
#include "agent/proc/launch_file.h"
#include "tests/support/beside.h"
#include "tests/unit/store/temp_dir.h"

namespace dtrain::proc {
namespace {

constexpr char kUnit[] = "dtrain-17.2.worker-1-1a2b3c4d.service";
constexpr int kUnavailable = 69;
constexpr Duration kBound = 60s;

class LateUnit : public ::testing::Test {
 protected:
  LateUnit() {
    home_ = root_ + "/home";
    std::filesystem::create_directories(home_);
    int pair[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    ours_.reset(pair[0]);
    theirs_.reset(pair[1]);
  }

  // With what the shim looks for in a group of its own.
  void launched_as(const std::string& unit) {
    LaunchFile launch;
    launch.agent_uid = ::geteuid();
    launch.argv = {"true"};
    launch.work_dir = root_;
    launch.notify = home_ + "/notify";
    launch.log_files = 2;
    launch.log_file_bytes = 1 << 20;
    launch.is_unit = true;
    launch.cgroup = root_ + "/" + unit;
    std::filesystem::create_directories(launch.cgroup + "/task");
    for (const char* control : {"events", "freeze", "kill"})
      std::ofstream(launch.cgroup + "/task/cgroup." + control) << "populated 0\nfrozen 0\n";
    const auto bytes = encode_launch(launch);
    ASSERT_TRUE(bytes);
    std::ofstream(home_ + "/" + shim::kLaunchFile) << *bytes;
  }
  // As systemd does it: the first connection is its standard input.
  pid_t start(const std::string& unit) {
    const std::string program = test::beside("dtrain-shim");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(theirs_.get(), 0);
      ::execl(program.c_str(), "dtrain-shim", home_.c_str(), unit.c_str(), nullptr);
      ::_exit(127);
    }
    theirs_.reset();
    return pid;
  }
  static int code_of(pid_t pid) {
    int status = 0;
    return ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  bool is_there(const char* name) const { return ::access((home_ + "/" + name).c_str(), F_OK) == 0; }

  const store::TempDir dir_;
  const std::string& root_ = dir_.path;
  std::string home_;
  UniqueFd ours_, theirs_;
};

TEST_F(LateUnit, OneThatIsWaitedForComesUp) {
  launched_as(kUnit);
  const pid_t pid = start(kUnit);
  for (const Instant end = boot_now() + kBound; !is_there(shim::kSocketFile) && boot_now() < end;) ::usleep(1000);
  EXPECT_TRUE(is_there(shim::kStateFile));
  ::kill(pid, SIGTERM);
  EXPECT_EQ(code_of(pid), 0);
}

TEST_F(LateUnit, OneThatNobodyWaitsForAnyMoreLeavesNoTrace) {
  launched_as(kUnit);
  ours_.reset();
  EXPECT_EQ(code_of(start(kUnit)), kUnavailable);
  EXPECT_FALSE(is_there(shim::kStateFile));
  EXPECT_FALSE(is_there(shim::kSocketFile));
}

// Its agent may even live: what counts is that the directory is another's.
TEST_F(LateUnit, OneInWhoseDirectoryAnotherWasLaunchedTouchesNothing) {
  launched_as("dtrain-17.2.worker-1-99999999.service");
  EXPECT_EQ(code_of(start(kUnit)), kUnavailable);
  EXPECT_FALSE(is_there(shim::kStateFile));
  EXPECT_FALSE(is_there(shim::kSocketFile));
}

}  // namespace
}  // namespace dtrain::proc
