#include "agent/proc/become_user.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "tests/unit/proc/log_files.h"

namespace dtrain::proc {
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

TEST(ActingAs, ReachesWhatTheUserReachesAndThenAllAgain) {
  if (::geteuid() != 0) return;  // without root there is only one user to be
  const testing::ScratchDir top;
  ASSERT_EQ(::chmod(top.path().c_str(), 0700), 0);
  EXPECT_EQ(in_child([&] {
              const gid_t groups[] = {0, 4242};
              if (::setgroups(2, groups) != 0) return 1;
              {
                const ActingAs nobody(kNobody);
                gid_t now[4];
                if (nobody.error() != 0 || ::geteuid() != 65534 || ::getegid() != 65534) return 2;
                if (::getgroups(4, now) != 1 || now[0] != 65534) return 3;
                if (::eaccess((top / "file").c_str(), F_OK) == 0 || errno != EACCES) return 4;
              }
              gid_t now[4];
              if (::geteuid() != 0 || ::getegid() != 0 || ::getgroups(4, now) != 2 || now[1] != 4242) return 5;
              return ::eaccess(top.path().c_str(), R_OK | W_OK | X_OK) == 0 ? 0 : 6;
            }),
            0);
}

TEST(ActingAs, StillDiesWithItsParent) {
  if (::geteuid() != 0) return;
  EXPECT_EQ(in_child([] {
              ::prctl(PR_SET_PDEATHSIG, SIGKILL);
              int signal = 0;
              {
                const ActingAs nobody(kNobody);
                if (::prctl(PR_GET_PDEATHSIG, &signal) != 0 || signal != SIGKILL) return 1;
              }
              return ::prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGKILL ? 0 : 2;
            }),
            0);
}

TEST(ActingAs, TheUsersProcessesCannotSignalIt) {
  if (::geteuid() != 0) return;
  EXPECT_EQ(in_child([] {
              const ActingAs nobody(kNobody);
              return in_child([] {
                if (::seteuid(0) != 0 || !become(kNobody)) return 1;
                return ::kill(::getppid(), SIGTERM) != 0 && errno == EPERM ? 0 : 2;
              });
            }),
            0);
}

}  // namespace
}  // namespace dtrain::proc
