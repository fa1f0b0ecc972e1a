#include "agent/dtrain-shim/tree.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <initializer_list>

namespace dtrain::shim {

namespace {

constexpr uint32_t kPids = 1 << 22;        // PID_MAX_LIMIT of 64-bit kernels
constexpr size_t kTreeProcesses = 16'384;  // of one scan; what is beyond is found by the next one

// Result of the newest scan. Static: an idle shim never uses these pages.
struct Scan {
  uint64_t member[kPids / 64];
  int32_t pids[kTreeProcesses];  // parents before their children
  bool stopped[kTreeProcesses];
  size_t count;
};
Scan scan;

// Processes that signal_at_once() stopped, and must continue. Static for the same reason.
struct Halted {
  uint64_t member[kPids / 64];
  int32_t pids[kTreeProcesses];
  size_t count;
};
Halted halted;

constexpr int kHaltLooks = 100;               // a process in an uninterruptible sleep stops later and is not waited for
constexpr timespec kHaltPause{0, 1'000'000};  // between two looks

bool is_member(uint32_t pid) { return (scan.member[pid / 64] >> (pid % 64) & 1) != 0; }

struct ProcessStat {
  uint32_t parent = 0;
  char state = 0;
  uint64_t faults = 0;  // those that needed no disk
};

constexpr int kFaultsAfterParent = 6;  // fields of proc(5), from ppid to minflt

uint64_t read_number(const char*& c) {
  uint64_t number = 0;
  for (; *c >= '0' && *c <= '9'; ++c) number = number * 10 + static_cast<uint64_t>(*c - '0');
  return number;
}

bool read_stat(const char* pid, ProcessStat& out) {
  Text<64> path;
  path.add("/proc/").add(pid).add("/stat");
  const int fd = open_file(path.c_str(), O_RDONLY);
  if (fd < 0) return false;
  char text[512];
  const ssize_t n = reread(fd, text, sizeof(text));
  close(fd);
  const char* name_end = n > 0 ? strrchr(text, ')') : nullptr;  // the name may contain anything
  if (name_end == nullptr || name_end[1] != ' ' || name_end[2] == '\0' || name_end[3] != ' ') return false;
  out.state = name_end[2];
  const char* c = name_end + 4;
  out.parent = static_cast<uint32_t>(read_number(c));
  for (int field = 0; field < kFaultsAfterParent && c != nullptr; ++field)
    if ((c = strchr(c, ' ')) != nullptr) ++c;
  out.faults = c != nullptr ? read_number(c) : 0;
  return out.parent < kPids;
}

}  // namespace

namespace {

bool read_stat(int pid, ProcessStat& out) {
  Text<16> number;
  number.add(static_cast<uint64_t>(pid));
  return read_stat(number.c_str(), out);
}

}  // namespace

int parent_of(int pid) {
  ProcessStat stat;
  return read_stat(pid, stat) ? static_cast<int>(stat.parent) : 0;
}

bool progress_of(int pid, task::Progress& out) {
  ProcessStat stat;
  if (!read_stat(pid, stat)) return false;
  out = {stat.faults, stat.state != 'R' && stat.state != 'D'};
  return true;
}

namespace {

// One pass through /proc. Adds every process whose parent is a member; returns true when there were new ones.
bool scan_pass() {
  const int proc = open_file("/proc", O_RDONLY | O_DIRECTORY);
  if (proc < 0) return false;
  bool grown = false;
  alignas(dirent64) char buffer[8192];
  long n;
  while ((n = syscall(SYS_getdents64, proc, buffer, sizeof(buffer))) > 0) {
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      uint32_t pid = 0;
      const char* c = entry->d_name;
      for (; *c >= '0' && *c <= '9' && pid < kPids; ++c) pid = pid * 10 + static_cast<uint32_t>(*c - '0');
      if (*c != '\0' || pid == 0 || pid >= kPids || is_member(pid)) continue;
      ProcessStat stat;
      if (!read_stat(entry->d_name, stat) || !is_member(stat.parent)) continue;
      if (scan.count == kTreeProcesses) continue;
      scan.member[pid / 64] |= uint64_t{1} << (pid % 64);
      scan.pids[scan.count] = static_cast<int32_t>(pid);
      // A zombie may have living threads, so it is a member, but it has no other state.
      scan.stopped[scan.count] = strchr("TtZX", stat.state) != nullptr;
      ++scan.count;
      grown = true;
    }
  }
  close(proc);
  return grown;
}

// All descendants of this process. From /proc/*/stat instead of /proc/*/task/*/children, which not every kernel has.
void scan_tree() {
  for (size_t i = 0; i < scan.count; ++i) scan.member[scan.pids[i] / 64] = 0;
  scan.count = 0;
  const uint32_t self = static_cast<uint32_t>(getpid());
  scan.member[self / 64] |= uint64_t{1} << (self % 64);
  while (scan_pass()) {
  }
  scan.member[self / 64] &= ~(uint64_t{1} << (self % 64));
}

int open_in(int directory, const char* name, int flags) { return openat(directory, name, flags | O_CLOEXEC); }

}  // namespace

bool Tree::open(const char* cgroup, const char* memory_cgroup) {
  if (memory_cgroup[0] != '\0') {
    Text<PATH_MAX> path;
    path.add(memory_cgroup).add("/memory.oom_control");
    memory_control_ = open_file(path.c_str(), O_RDONLY);
  }
  cgroup_ = cgroup;
  return cgroup[0] == '\0' || open_controls();
}

bool Tree::open_controls() {
  Text<PATH_MAX> path;
  path.add(cgroup_).add("/task");
  directory_ = open_file(path.c_str(), O_RDONLY | O_DIRECTORY);
  // Otherwise systemd made the cgroup.
  if (directory_ < 0 && errno == ENOENT && mkdir(path.c_str(), 0755) == 0) directory_ = open_file(path.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory_ < 0) return false;
  events_ = open_in(directory_, "cgroup.events", O_RDONLY);
  freeze_ = open_in(directory_, "cgroup.freeze", O_WRONLY);
  kill_ = open_in(directory_, "cgroup.kill", O_WRONLY);
  // If the controller is enabled: of the task's own limit, or of its unit's.
  memory_events_ = open_in(directory_, "memory.events", O_RDONLY);
  if (memory_events_ < 0) memory_events_ = open_in(directory_, "../memory.events", O_RDONLY);
  if (events_ >= 0 && freeze_ >= 0 && kill_ >= 0) return true;
  const int cause = errno;
  close_controls();
  errno = cause;
  return false;
}

void Tree::close_controls() {
  for (int* fd : {&directory_, &events_, &freeze_, &kill_, &memory_events_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

void Tree::renew() {
  if (!has_cgroup() || !killed_) return;
  killed_ = false;
  char limit[32] = {};
  ssize_t limit_bytes = 0;
  if (const int fd = open_in(directory_, "memory.max", O_RDONLY); fd >= 0) {
    limit_bytes = reread(fd, limit, sizeof(limit));
    close(fd);
  }
  close_controls();
  Text<PATH_MAX> path;
  path.add(cgroup_).add("/task");
  // Without a new cgroup the attempts run outside of it and are found by descent, as on hosts without cgroups.
  if (rmdir(path.c_str()) != 0 || mkdir(path.c_str(), 0755) != 0 || !open_controls()) return;
  if (limit_bytes <= 0) return;
  if (const int fd = open_in(directory_, "memory.max", O_WRONLY); fd >= 0) {
    (void)!write(fd, limit, static_cast<size_t>(limit_bytes));
    close(fd);
  }
}

bool Tree::cgroup_empty() const {
  if (!has_cgroup()) return true;
  char text[256];
  return reread(events_, text, sizeof(text)) > 0 && value_of(text, "populated") == 0;
}

void Tree::kill_all() {
  if (has_cgroup()) killed_ = pwrite(kill_, "1", 1, 0) == 1 || killed_;
  // Even with a cgroup: a process with the right to may have moved itself out of it.
  signal_all(SIGKILL);
}

void Tree::signal_all(int signal) const {
  scan_tree();
  for (size_t i = 0; i < scan.count; ++i) ::kill(scan.pids[i], signal);
}

void Tree::signal_at_once(int signal) const {
  int quiet = 0;  // passes in a row that found nothing new and everything stopped: two are needed, as for a freeze
  for (int looks = 0; quiet < 2 && looks < kHaltLooks; ++looks) {
    scan_tree();
    ++quiet;
    for (size_t i = 0; i < scan.count; ++i) {
      if (scan.stopped[i]) continue;
      quiet = 0;
      const auto pid = static_cast<uint32_t>(scan.pids[i]);
      if ((halted.member[pid / 64] >> (pid % 64) & 1) != 0 || halted.count == kTreeProcesses) continue;
      halted.member[pid / 64] |= uint64_t{1} << (pid % 64);
      halted.pids[halted.count++] = scan.pids[i];
      ::kill(scan.pids[i], SIGSTOP);
    }
    if (quiet == 0) syscall(SYS_nanosleep, &kHaltPause, nullptr);
  }
  for (size_t i = 0; i < scan.count; ++i) ::kill(scan.pids[i], signal);
  for (size_t i = 0; i < halted.count; ++i) {
    ::kill(halted.pids[i], SIGCONT);
    halted.member[halted.pids[i] / 64] = 0;
  }
  halted.count = 0;
}

void Tree::signal_session(int session, int signal) const {
  scan_tree();
  for (size_t i = 0; i < scan.count; ++i)
    if (getsid(scan.pids[i]) == session) ::kill(scan.pids[i], signal);
}

void Tree::begin_freeze() {
  quiet_pass_ = false;
  if (has_cgroup()) (void)!pwrite(freeze_, "1", 1, 0);
}

bool Tree::freeze_step() {
  if (has_cgroup()) {
    char text[256];
    return reread(events_, text, sizeof(text)) > 0 && value_of(text, "frozen") == 1;
  }
  scan_tree();
  bool quiet = true;
  for (size_t i = 0; i < scan.count; ++i) {
    if (scan.stopped[i]) continue;
    quiet = false;
    ::kill(scan.pids[i], SIGSTOP);
  }
  // Two quiet passes: a process that forked during the first was seen by the second.
  const bool done = quiet && quiet_pass_;
  quiet_pass_ = quiet;
  return done;
}

void Tree::thaw() {
  if (has_cgroup()) {
    (void)!pwrite(freeze_, "0", 1, 0);
    return;
  }
  scan_tree();
  for (size_t i = scan.count; i > 0; --i) ::kill(scan.pids[i - 1], SIGCONT);  // children before their parents
}

uint64_t Tree::memory_kills() const {
  char text[1024];
  uint64_t kills = 0;
  for (const int fd : {memory_events_, memory_control_}) {
    if (fd < 0 || reread(fd, text, sizeof(text)) <= 0) continue;
    const int64_t value = value_of(text, "oom_kill");
    if (value > 0) kills += static_cast<uint64_t>(value);
  }
  return kills;
}

}  // namespace dtrain::shim
