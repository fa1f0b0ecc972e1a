#include "agent/dtrain-shim/child.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/dtrain-shim/standbys.h"
#include "agent/dtrain-shim/vfork_clone.h"

namespace dtrain::shim {

namespace {

// glibc's set*id functions would try to change every thread of the shared memory; the bare system calls change this process only.
long raw(long number, long a = 0, long b = 0, long c = 0, long d = 0) { return syscall(number, a, b, c, d); }

[[noreturn]] void give_up(ChildPlan& plan, Step step, int error) {
  plan.step = static_cast<uint8_t>(step);
  plan.error = error;
  _exit(error == ENOENT && (step == Step::execute || step == Step::interpret) ? 127 : 126);
}

void apply_limits(ChildPlan& plan) {
  const LaunchHeader& h = plan.launch->header;
  for (uint32_t i = 0; i < h.rlimit_count; ++i) {
    const auto resource = static_cast<int>(h.rlimits[i].resource);
    rlimit wanted{h.rlimits[i].value, h.rlimits[i].value};
    if (raw(SYS_prlimit64, 0, resource, reinterpret_cast<long>(&wanted)) == 0) continue;
    // The hard limit may not be raised: the value is as high as it permits.
    rlimit present{};
    if (raw(SYS_prlimit64, 0, resource, 0, reinterpret_cast<long>(&present)) != 0) give_up(plan, Step::set_limit, errno);
    if (wanted.rlim_cur > present.rlim_max) wanted.rlim_cur = present.rlim_max;
    wanted.rlim_max = present.rlim_max;
    if (raw(SYS_prlimit64, 0, resource, reinterpret_cast<long>(&wanted)) != 0) give_up(plan, Step::set_limit, errno);
  }
}

// The agent and its shims may be protected when memory is short (OOMScoreAdjust= of the unit); the task must die
// first. Written by a child of vfork this concerns only the child. If /proc is not available, nothing was protected.
void be_killed_first() {
  const int fd = open_file("/proc/self/oom_score_adj", O_RDWR);
  char sign = 0;
  if (fd >= 0 && read(fd, &sign, 1) == 1 && sign == '-') (void)!write(fd, "0", 1);
  if (fd >= 0) close(fd);
}

// A standby has the CPUs that the task leaves, and dies first of all. Only a shim that may take this back later does it.
void be_last(const ChildPlan& plan) {
  if ((plan.launch->header.flags & kSwitchUser) != 0) raw(SYS_setpriority, PRIO_PROCESS, 0, 19);
  const int fd = open_file("/proc/self/oom_score_adj", O_WRONLY);
  if (fd < 0) return;
  (void)!write(fd, "1000", 4);
  close(fd);
}

// CPUs of the task's own, and their memory first. A unit gets both from systemd (docs/shim.md). A refusal of the
// kernel (CPUs that are offline by now, or not this container's) never keeps an attempt from starting: the agent
// checks what is in force, and reports it.
void take_cpus(const Launch& launch) {
  const LaunchHeader& h = launch.header;
  if ((h.flags & kUnit) != 0) return;
  if (h.cpu_bytes > 0) raw(SYS_sched_setaffinity, 0, h.cpu_bytes, reinterpret_cast<long>(launch.cpus));
  if (h.numa_node < 0 || h.numa_node >= static_cast<int32_t>(kNumaNodes)) return;
  constexpr uint32_t kBits = 8 * sizeof(unsigned long);
  unsigned long nodes[kNumaNodes / kBits] = {};
  const auto node = static_cast<uint32_t>(h.numa_node);
  nodes[node / kBits] = 1ul << node % kBits;
  // the kernel reads one bit less than this number
  raw(SYS_set_mempolicy, MPOL_PREFERRED, reinterpret_cast<long>(nodes), kNumaNodes + 1);
}

// Finds out why an existing program cannot be executed: the interpreter in its first line or ELF header is missing or
// may not be executed. The kernel's error is the same as for the program itself. The first one found is kept.
void note_interpreter(ChildPlan& plan, const char* program) {
  if (plan.interpreter[0] != '\0' || raw(SYS_faccessat, AT_FDCWD, reinterpret_cast<long>(program), X_OK) != 0) return;
  const int fd = open_file(program, O_RDONLY | O_NONBLOCK);
  if (fd < 0) return;
  char* const name = plan.interpreter;
  char head[kInterpreterBytes] = {};
  ssize_t n = pread(fd, head, sizeof(head) - 1, 0);
  if (n > 2 && head[0] == '#' && head[1] == '!') {
    const char* from = head + 2;
    while (*from == ' ' || *from == '\t') ++from;
    size_t length = 0;
    while (from[length] != '\0' && strchr(" \t\n", from[length]) == nullptr) ++length;
    memcpy(name, from, length);
    name[length] = '\0';
  } else if (n >= static_cast<ssize_t>(sizeof(Elf64_Ehdr)) && memcmp(head, ELFMAG, SELFMAG) == 0 && head[EI_CLASS] == ELFCLASS64) {
    Elf64_Ehdr file;
    memcpy(&file, head, sizeof(file));
    for (uint16_t i = 0; i < file.e_phnum && file.e_phentsize == sizeof(Elf64_Phdr); ++i) {
      Elf64_Phdr part;
      if (pread(fd, &part, sizeof(part), static_cast<off_t>(file.e_phoff + i * sizeof(part))) != sizeof(part)) break;
      if (part.p_type != PT_INTERP) continue;
      n = pread(fd, name, part.p_filesz < kInterpreterBytes ? part.p_filesz : kInterpreterBytes - 1, static_cast<off_t>(part.p_offset));
      name[n > 0 ? n : 0] = '\0';
      break;
    }
  }
  close(fd);
  // The program itself is at fault after all.
  if (raw(SYS_faccessat, AT_FDCWD, reinterpret_cast<long>(name), X_OK) == 0) name[0] = '\0';
}

// Like execvpe: tries the entries of PATH, and keeps the most informative error.
int execute(ChildPlan& plan) {
  const Launch& launch = *plan.launch;
  char** const argv = plan.argv != nullptr ? plan.argv : launch.argv;
  const char* name = argv[0];
  if (name[0] == '\0') return ENOENT;
  const auto attempt = [&](const char* program) {
    execve(program, argv, launch.env);
    const int cause = errno;
    if (cause == ENOENT || cause == EACCES) note_interpreter(plan, program);
    return cause;
  };
  if (strchr(name, '/') != nullptr) return attempt(name);
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
      const int error = attempt(file);
      if (error != ENOENT && error != ENOTDIR) cause = error;
      if (error == E2BIG || error == ENOMEM || error == ETXTBSY) return error;
    }
    if (*end == '\0') return cause;
    entry = end + 1;
  }
}

void run_child(void* context) {
  ChildPlan& plan = *static_cast<ChildPlan*>(context);
  const LaunchHeader& h = plan.launch->header;
  setsid();
  // stdin is /dev/null already, like the shim's own descriptors 0 to 2.
  if (plan.in >= 0 && dup2(plan.in, 0) < 0) give_up(plan, Step::execute, errno);
  if (dup2(plan.out, 1) < 0 || dup2(plan.err, 2) < 0) give_up(plan, Step::execute, errno);
  // The shim may have a higher priority, like the agent; a task has the usual one. (The system call returns 20 minus
  // the nice value.)
  if (raw(SYS_getpriority, PRIO_PROCESS, 0) > 20) raw(SYS_setpriority, PRIO_PROCESS, 0, 0);
  be_killed_first();
  if (plan.standby >= 0) be_last(plan);
  apply_limits(plan);
  take_cpus(*plan.launch);
  if ((h.flags & kSwitchUser) != 0 && (raw(SYS_setgroups, h.group_count, reinterpret_cast<long>(plan.launch->groups)) != 0 ||
                                       raw(SYS_setresgid, h.gid, h.gid, h.gid) != 0 || raw(SYS_setresuid, h.uid, h.uid, h.uid) != 0))
    give_up(plan, Step::become_user, errno);
  // After the change of user, which clears it. Without it, a shim that is killed would leave its task running.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (raw(SYS_getppid) != plan.parent) _exit(126);
  umask(022);
  if (chdir(plan.launch->work_dir) != 0) give_up(plan, Step::enter_directory, errno);
  if (plan.standby >= 0 && dup2(plan.standby, kStandbySocket) < 0) give_up(plan, Step::execute, errno);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int error = execute(plan);
  give_up(plan, plan.interpreter[0] != '\0' ? Step::interpret : Step::execute, error);
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
