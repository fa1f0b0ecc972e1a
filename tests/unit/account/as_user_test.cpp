#include "agent/account/as_user.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
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
              const auto rights = AsUser::enter(kNobody, "nobody");
              if (!rights) return 1;
              return in_child([] {
                if (::setgid(kNobody.gid) != 0 || ::setuid(kNobody.uid) != 0) return 2;
                return ::kill(::getppid(), SIGTERM) != 0 && errno == EPERM ? 0 : 3;
              });
            }),
            0);
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
