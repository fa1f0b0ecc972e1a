#include "agent/proc/spawn_shim.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "agent/base/small_file.h"
#include "agent/dtrain-shim/protocol.h"
#include "agent/dtrain-shim/vfork_clone.h"

namespace dtrain::proc {

namespace {

struct Plan {
  const char* path;
  char* const* argv;
  char* const* env;
  int socket;
  volatile int error;
};

// Runs on the agent's memory while the calling thread is suspended: system calls only.
__attribute__((no_sanitize("address", "thread", "undefined"))) void become_shim(void* context) {
  Plan& plan = *static_cast<Plan*>(context);
  syscall(SYS_setsid);
  // dup3 refuses equal descriptors, and would then leave close-on-exec set: fcntl clears it.
  const long result = plan.socket == shim::kBirthSocket ? syscall(SYS_fcntl, plan.socket, F_SETFD, 0)
                                                        : syscall(SYS_dup3, plan.socket, shim::kBirthSocket, 0);
  if (result >= 0) {
    syscall(SYS_close_range, shim::kBirthSocket + 1, UINT_MAX, 0);  // whatever a library left without close-on-exec
    syscall(SYS_execve, plan.path, plan.argv, plan.env);
  }
  plan.error = errno;
  syscall(SYS_exit_group, 127);
}

}  // namespace

Result<UniqueFd> spawn_shim(const std::string& shim_path, const std::string& directory, const std::string& cgroup, UniqueFd theirs) {
  const auto failed = [&](int cause) {
    return fail(ErrorCode::io, "could not launch " + shim_path + ": " + cause_of(cause),
                "check that dtrain-shim is installed and that the host allows more processes");
  };
  std::string program = "dtrain-shim", argument = directory, nothing;
  char* argv[2 + shim::kPathRoom + 1] = {program.data(), argument.data()};
  std::fill_n(argv + 2, shim::kPathRoom, nothing.data());
  char* const env[] = {nullptr};
  Plan plan{shim_path.c_str(), argv, env, theirs.get(), 0};

  clone_args args{};
  int pidfd = -1;
  args.flags = shim::kVforkFlags | CLONE_PIDFD;
  args.pidfd = reinterpret_cast<std::uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  UniqueFd home;
  if (!cgroup.empty()) {
    home.reset(::open(cgroup.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!home) return failed(errno);
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<std::uint64_t>(home.get());
  }
  // The agent's signal handlers must not run in the child, on the agent's memory.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const long pid = shim::vfork_clone(&args, become_shim, &plan);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return failed(static_cast<int>(-pid));
  UniqueFd result(pidfd);
  if (plan.error != 0) {
    siginfo_t info{};
    ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd), &info, WEXITED);
    return failed(plan.error);
  }
  return result;
}

}  // namespace dtrain::proc
