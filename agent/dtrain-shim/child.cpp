#include "agent/dtrain-shim/child.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/dtrain-shim/vfork_clone.h"

namespace dtrain::shim {

namespace {

// glibc's set*id functions would try to change every thread of the shared memory; the bare calls change this process.
long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0) { return syscall(number, a, b, c, d); }

[[noreturn]] void give_up(ChildPlan& plan, Step step, int error) {
  plan.step = static_cast<uint8_t>(step);
  plan.error = error;
  _exit(error == ENOENT && step == Step::execute ? 127 : 126);
}

void apply_limits(ChildPlan& plan) {
  const LaunchHeader& h = plan.launch->header;
  for (uint32_t i = 0; i < h.rlimit_count; ++i) {
    const auto resource = static_cast<int>(h.rlimits[i].resource);
    rlimit wanted{h.rlimits[i].value, h.rlimits[i].value};
    if (raw(SYS_prlimit64, 0, resource, reinterpret_cast<long>(&wanted)) == 0) continue;
    // Not permitted to raise the hard limit: as much as it allows.
    rlimit present{};
    if (raw(SYS_prlimit64, 0, resource, 0, reinterpret_cast<long>(&present)) != 0)
      give_up(plan, Step::set_limit, errno);
    if (wanted.rlim_cur > present.rlim_max) wanted.rlim_cur = present.rlim_max;
    wanted.rlim_max = present.rlim_max;
    if (raw(SYS_prlimit64, 0, resource, reinterpret_cast<long>(&wanted)) != 0) give_up(plan, Step::set_limit, errno);
  }
}

// The agent and its shims may be spared when memory is short (OOMScoreAdjust= of the unit); the task dies first. Written by a
// child of vfork this is the child's alone. Where /proc cannot be had nobody was spared.
void be_killed_first() {
  const int fd = open_file("/proc/self/oom_score_adj", O_RDWR);
  char sign = 0;
  if (fd >= 0 && read(fd, &sign, 1) == 1 && sign == '-') (void)!write(fd, "0", 1);
  if (fd >= 0) close(fd);
}

// CPUs of its own, and the memory beside them first. A unit has both from systemd (docs/shim.md). What the kernel refuses (they are offline
// by now, or not this container's) never keeps an attempt from starting: the agent looks what is in force, and says it.
void take_cpus(const Launch& launch) {
  const LaunchHeader& h = launch.header;
  if ((h.flags & kUnit) != 0) return;
  if (h.cpu_bytes > 0) raw(SYS_sched_setaffinity, 0, h.cpu_bytes, reinterpret_cast<long>(launch.cpus));
  if (h.numa_node < 0 || h.numa_node >= static_cast<int32_t>(kNumaNodes)) return;
  constexpr uint32_t kBits = 8 * sizeof(unsigned long);
  unsigned long nodes[kNumaNodes / kBits] = {};
  const auto node = static_cast<uint32_t>(h.numa_node);
  nodes[node / kBits] = 1ul << node % kBits;
  raw(SYS_set_mempolicy, MPOL_PREFERRED, reinterpret_cast<long>(nodes), kNumaNodes + 1);  // it counts one less than it is told
}

// As execvpe does: the first entry of PATH that can be executed. Its cause of failure is the most telling one.
int execute(const Launch& launch) {
  const char* name = launch.argv[0];
  if (name[0] == '\0') return ENOENT;
  if (strchr(name, '/') != nullptr) {
    execve(name, launch.argv, launch.env);
    return errno;
  }
  const char* entry = launch.path != nullptr ? launch.path : "/usr/local/bin:/usr/bin:/bin";
  int cause = ENOENT;
  while (true) {
    const char* end = strchrnul(entry, ':');
    char file[4096];
    const size_t directory = static_cast<size_t>(end - entry), length = strlen(name);
    if (directory + length + 2 <= sizeof(file)) {
      size_t at = 0;
      memcpy(file, entry, directory);
      at += directory;
      if (directory != 0) file[at++] = '/';  // an empty entry is the current directory
      memcpy(file + at, name, length + 1);
      execve(file, launch.argv, launch.env);
      if (errno != ENOENT && errno != ENOTDIR) cause = errno;
      if (errno == E2BIG || errno == ENOMEM || errno == ETXTBSY) return errno;
    }
    if (*end == '\0') return cause;
    entry = end + 1;
  }
}

void run_child(void* context) {
  ChildPlan& plan = *static_cast<ChildPlan*>(context);
  const LaunchHeader& h = plan.launch->header;
  setsid();
  // stdin is /dev/null already: the shim's own descriptors 0 to 2 are.
  if (dup2(plan.out, 1) < 0 || dup2(plan.err, 2) < 0) give_up(plan, Step::execute, errno);
  // The shim may be more urgent than others, as the agent is; a task is not. (The system call answers 20 minus niceness.)
  if (raw(SYS_getpriority, PRIO_PROCESS, 0) > 20) raw(SYS_setpriority, PRIO_PROCESS, 0, 0);
  be_killed_first();
  apply_limits(plan);
  take_cpus(*plan.launch);
  if ((h.flags & kSwitchUser) != 0 &&
      (raw(SYS_setgroups, h.group_count, reinterpret_cast<long>(plan.launch->groups)) != 0 ||
       raw(SYS_setresgid, h.gid, h.gid, h.gid) != 0 || raw(SYS_setresuid, h.uid, h.uid, h.uid) != 0))
    give_up(plan, Step::become_user, errno);
  // After the change of user, which clears it. Without it a shim killed by somebody would leave its task running.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (raw(SYS_getppid) != plan.parent) _exit(126);
  umask(022);
  if (chdir(plan.launch->work_dir) != 0) give_up(plan, Step::enter_directory, errno);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  give_up(plan, Step::execute, execute(*plan.launch));
}

}  // namespace

int spawn(ChildPlan& plan) {
  clone_args args{};
  args.flags = kVforkFlags;
  args.exit_signal = SIGCHLD;
  if (plan.cgroup >= 0) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<uint64_t>(plan.cgroup);
  }
  return static_cast<int>(vfork_clone(&args, run_child, &plan));
}

}  // namespace dtrain::shim
