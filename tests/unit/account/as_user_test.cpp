#include "agent/account/as_user.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>

namespace dtrain::account {
namespace {

const HostUser kNobody{65534, 65534, {65534}};

// In a process of its own; 0: all was as it should be, else the number of what was not.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(AsUser, ReachesWhatTheUserReachesAndThenAllAgain) {
  if (::geteuid() != 0) return;  // without root there is only one user to be
  std::string top = ::testing::TempDir() + "as-user-XXXXXX";
  ASSERT_NE(::mkdtemp(top.data()), nullptr);  // with mode 0700
  EXPECT_EQ(in_child([&] {
              const gid_t groups[] = {0, 4242};
              if (::setgroups(2, groups) != 0) return 1;
              gid_t now[4];
              struct stat info {};
              {
                const auto rights = AsUser::enter(kNobody, "nobody");
                if (!rights) return 2;
                if (::getgroups(4, now) != 1 || now[0] != 65534) return 3;
                if (::stat((top + "/.").c_str(), &info) == 0 || errno != EACCES) return 4;
              }
              if (::getgroups(4, now) != 2 || now[1] != 4242) return 5;
              return ::stat((top + "/.").c_str(), &info) == 0 ? 0 : 6;
            }),
            0);
  EXPECT_EQ(::rmdir(top.c_str()), 0);
}

TEST(AsUser, StillDiesWithItsParent) {
  if (::geteuid() != 0) return;
  EXPECT_EQ(in_child([] {
              ::prctl(PR_SET_PDEATHSIG, SIGKILL);
              int signal = 0;
              {
                const auto rights = AsUser::enter(kNobody, "nobody");
                if (!rights || ::prctl(PR_GET_PDEATHSIG, &signal) != 0 || signal != SIGKILL) return 1;
              }
              return ::prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGKILL ? 0 : 2;
            }),
            0);
}

TEST(AsUser, TheUsersProcessesCannotSignalIt) {
  if (::geteuid() != 0) return;
  EXPECT_EQ(in_child([] {
              int go[2];
              if (::pipe(go) != 0) return 1;
              const pid_t users = ::fork();  // who acts as somebody could not become them
              if (users == 0) {
                char word = 0;
                if (::setgid(kNobody.gid) != 0 || ::setuid(kNobody.uid) != 0 || ::read(go[0], &word, 1) != 1) ::_exit(2);
                ::_exit(::kill(::getppid(), SIGTERM) != 0 && errno == EPERM ? 0 : 3);
              }
              const auto rights = AsUser::enter(kNobody, "nobody");
              if (!rights || ::write(go[1], "x", 1) != 1) return 4;
              int status = 0;
              return ::waitpid(users, &status, 0) == users && WIFEXITED(status) ? WEXITSTATUS(status) : 5;
            }),
            0);
}

// Root's child stands in a directory that it alone may pass: what /proc says of it leads there for who may look at others' processes.
TEST(AsUser, HasNoCapabilityAndLooksAtNobodysProcesses) {
  if (::geteuid() != 0) return;
  std::string top = ::testing::TempDir() + "as-user-XXXXXX";
  ASSERT_NE(::mkdtemp(top.data()), nullptr);  // with mode 0700
  ASSERT_EQ(::mkdir((top + "/open").c_str(), 0755), 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t there = ::fork();
  if (there == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char done = ::chdir((top + "/open").c_str()) == 0 ? 'y' : 'n';
    (void)!::write(ready[1], &done, 1);
    for (;;) ::pause();
  }
  char done = 0;
  ASSERT_EQ(::read(ready[0], &done, 1), 1);
  ASSERT_EQ(done, 'y');
  const std::string inside = "/proc/" + std::to_string(there) + "/cwd/.";
  EXPECT_EQ(in_child([&] {
              const auto effective = [] {
                __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
                __user_cap_data_struct words[2]{};
                ::syscall(SYS_capget, &head, words);
                return std::uint64_t{words[1].effective} << 32 | words[0].effective;
              };
              const std::uint64_t before = effective();
              struct stat info {};
              if (before == 0 || ::stat(inside.c_str(), &info) != 0) return 1;
              {
                const auto rights = AsUser::enter(kNobody, "nobody");
                if (!rights) return 2;
                if (effective() != 0) return 3;
                if (::stat(inside.c_str(), &info) == 0 || errno != EACCES) return 4;
              }
              if (effective() != before) return 5;
              return ::stat(inside.c_str(), &info) == 0 ? 0 : 6;
            }),
            0);
  ::kill(there, SIGKILL);
  ::waitpid(there, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_EQ(::rmdir((top + "/open").c_str()), 0);
  EXPECT_EQ(::rmdir(top.c_str()), 0);
}

TEST(AsUser, AUserThatTheHostLacksIsNamed) {
  if (::geteuid() != 0) return;
  const auto rights = AsUser::enter({"no-such-user-here", 4242});
  ASSERT_FALSE(rights);
  EXPECT_EQ(rights.error().code, ErrorCode::refused);
  EXPECT_EQ(rights.error().message, "could not act as user no-such-user-here: could not find user no-such-user-here: this host has none");
}

}  // namespace
}  // namespace dtrain::account
