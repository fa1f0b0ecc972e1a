// Whose process is it: a /proc of our own making, and the real one.
#include "agent/proc/task_of_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/store/temp_dir.h"

namespace dtrain::proc {
namespace {

class TaskOfProcess : public ::testing::Test {
 protected:
  void add(int pid, int parent, const std::string& name, const std::string& argument = "", uid_t uid = ::geteuid()) {
    const auto at = std::filesystem::path(directory_) / std::to_string(pid);
    std::filesystem::create_directories(at);
    std::ofstream(at / "stat") << pid << " (" << name << ") S " << parent << " 1 1 0 -1 4194560\n";
    std::ofstream(at / "status") << "Name:\t" << name << "\nUid:\t" << uid << '\t' << uid << '\t' << ::geteuid() << '\t' << uid
                                 << "\nGid:\t0\n";
    std::ofstream(at / "cmdline", std::ios::binary) << name << '\0' << argument << '\0';
  }
  bool in_task(int pid) { return runs_in_task(pid, "/var/lib/dtrain/tasks", directory_); }

  const store::TempDir dir_;
  const std::string& directory_ = dir_.path;
};

TEST_F(TaskOfProcess, WhoeverDescendsFromAShimOfOurs) {
  add(10, 1, "dtrain-shim", "/var/lib/dtrain/tasks/4.1.worker-0");
  add(11, 10, "python3");
  add(12, 11, "a) R 1 (b", "x");  // a name may look like the line itself
  add(20, 1, "sshd");
  add(21, 20, "bash");
  EXPECT_TRUE(in_task(11));
  EXPECT_TRUE(in_task(12));
  EXPECT_TRUE(in_task(10));
  EXPECT_FALSE(in_task(21));
  EXPECT_FALSE(in_task(1));
  const auto shim_of = [&](pid_t pid) {
    return ancestor_of(
        pid, [](pid_t one) { return one == 10; }, directory_);
  };
  EXPECT_EQ(shim_of(12), 10);
  EXPECT_EQ(shim_of(10), 10);
  EXPECT_EQ(shim_of(21), std::nullopt);
  EXPECT_EQ(shim_of(99), std::nullopt) << "gone: nobody can tell";
  EXPECT_FALSE(in_task(0)) << "of an outer namespace";
}

// Everybody chooses their own name and arguments; and a program with the setuid bit is root's in part.
TEST_F(TaskOfProcess, WhoCallsThemselvesAShimIsNone) {
  add(40, 1, "dtrain-shim", "/var/lib/dtrain/tasks/4.1.worker-0", ::geteuid() + 1);
  add(41, 40, "python3");
  EXPECT_FALSE(in_task(40));
  EXPECT_FALSE(in_task(41));
}

TEST_F(TaskOfProcess, AnAgentMayItselfRunInATask) {
  add(10, 1, "dtrain-shim", "/srv/outer/tasks/4.1.worker-0");
  add(11, 10, "dtraind");
  add(12, 11, "bash");
  EXPECT_FALSE(in_task(12));
  add(13, 1, "dtrain-shim", "/var/lib/dtrain/tasks-of-another/1.1.worker-0");
  add(14, 13, "bash");
  EXPECT_FALSE(in_task(14));
}

TEST_F(TaskOfProcess, WhoIsGoneOrHasNoEndOfAncestorsIsNotBelieved) {
  EXPECT_TRUE(in_task(4711));
  add(30, 31, "one");
  add(31, 30, "other");
  EXPECT_TRUE(in_task(30));
}

TEST_F(TaskOfProcess, ThisTestIsNone) { EXPECT_FALSE(runs_in_task(::getpid(), "/var/lib/dtrain/tasks")); }

}  // namespace
}  // namespace dtrain::proc
