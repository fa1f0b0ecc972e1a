// Sets a shim up: opens and reserves everything that it will ever need.
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/dtrain-shim/shim.h"

namespace dtrain::shim {

namespace {

constexpr size_t kSignalBytes = 8;  // of the kernel's set of signals

}  // namespace

bool Shim::open(const char* directory, const char* unit, bool again) {
  unit_ = unit;
  again_ = again;
  static constexpr Open kSteps[] = {&Shim::become_daemon, &Shim::load_launch, &Shim::join_cgroups, &Shim::open_files,
                                    &Shim::open_sockets,  &Shim::open_lease,  &Shim::open_standbys};
  ReplyPacket refusal;
  bool ok = chdir(directory) == 0;
  for (const Open step : kSteps) {
    if (!ok) break;
    ++refusal.a;
    ok = (this->*step)();
  }
  if (ok) return true;
  refusal.command = static_cast<uint16_t>(Command::hello);
  refusal.outcome = static_cast<uint16_t>(Outcome::failed);
  refusal.error = errno;
  (void)!send(kBirthSocket, &refusal, sizeof(refusal), MSG_NOSIGNAL | MSG_DONTWAIT);
  return false;
}

namespace {

bool is_socket(int fd, int wanted) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == wanted;
}

}  // namespace

// systemd passes the first connection as descriptor 0, and the journal as 1. Both are moved from the numbers that the
// task's descriptors need.
bool Shim::take_descriptors() {
  if (is_socket(kBirthSocket, SOCK_SEQPACKET) || !is_socket(0, SOCK_SEQPACKET)) return true;
  if (dup2(0, kBirthSocket) < 0) return false;
  if (is_socket(1, SOCK_STREAM)) journal_.open(fcntl(1, F_DUPFD_CLOEXEC, kBirthSocket + 1));
  return true;
}

bool Shim::become_daemon() {
  if (again_) return open_events();
  umask(077);
  setsid();  // fails harmlessly if the launcher has done it
  if (!take_descriptors()) return false;
  const int null = ::open("/dev/null", O_RDWR);
  if (null < 0) return false;
  for (int fd = 0; fd < 3; ++fd)
    if (null != fd && dup2(null, fd) < 0) return false;
  if (null > 2) close(null);
  // What the launcher ignored must not be ignored by the task, and only SIGKILL may end a shim against its will: when
  // the host stops, the tasks get their own SIGTERM, and their exits must still be recorded; the shim's SIGTERM shows
  // why they ended. The bare system calls, because a C library reserves some real-time signals: it would let them
  // through, and leave ignored ones ignored.
  static constexpr char kDefault[32] = {};  // a kernel's sigaction: SIG_DFL, no flags, no mask
  for (int number = 1; number < NSIG; ++number) syscall(SYS_rt_sigaction, number, kDefault, nullptr, kSignalBytes);
  static constexpr uint64_t kAll = UINT64_MAX;
  if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &kAll, nullptr, kSignalBytes) != 0) return false;
  return prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 && open_events();
}

bool Shim::open_events() {
  sigset_t heard;
  sigemptyset(&heard);
  sigaddset(&heard, SIGCHLD);
  sigaddset(&heard, SIGTERM);
  signals_ = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  return signals_ >= 0 && epoll_ >= 0;
}

// systemd may start a service long after it was ordered. Meanwhile the agent may have died, and the next one may have
// launched another shim here: then launch file, sockets and state in this directory belong to that shim.
bool Shim::is_meant() const {
  if (unit_ == nullptr) return true;
  const char* slash = strrchr(launch_.cgroup, '/');
  if (slash != nullptr && strcmp(slash + 1, unit_) == 0) return true;
  errno = ESTALE;
  return false;
}

// An agent that ordered a service, and is gone or has given it up, has closed its end of the first connection.
bool Shim::is_wanted() const {
  pollfd birth{kBirthSocket, 0, 0};
  if ((launch_.header.flags & kUnit) == 0 || poll(&birth, 1, 0) == 0 || (birth.revents & (POLLHUP | POLLNVAL)) == 0) return true;
  errno = ECONNABORTED;
  return false;
}

bool Shim::load_launch() {
  if (!launch_.load() || !is_meant()) return false;
  record_.fixed_bytes = sizeof(Record);
  record_.shim_pid = getpid();
  record_.attempt = launch_.header.last_attempt;
  const int fd = open_file("/proc/sys/kernel/random/boot_id", O_RDONLY);
  if (fd < 0) return false;
  const ssize_t n = reread(fd, record_.boot_id, sizeof(record_.boot_id));
  close(fd);
  if (n > 0 && record_.boot_id[n - 1] == '\n') record_.boot_id[n - 1] = '\0';
  return n > 0;
}

// The launcher has put this process into the v2 cgroup's `shim`; systemd, which has no such child, into the unit's
// groups in every hierarchy. Otherwise the v1 memory cgroup is joined here, so that attempts inherit it: moving each
// of them would cost some 10 ms.
bool Shim::join_cgroups() {
  const bool joined_already = (launch_.header.flags & kUnit) != 0;
  if (launch_.memory_cgroup[0] != '\0' && !joined_already) {
    Text<PATH_MAX> path;
    path.add(launch_.memory_cgroup).add("/cgroup.procs");
    const int fd = open_file(path.c_str(), O_WRONLY);
    if (fd < 0) return false;
    const bool joined = write(fd, "0", 1) == 1;
    const int cause = errno;
    close(fd);
    errno = cause;
    if (!joined) return false;
  }
  if (!tree_.open(launch_.cgroup, launch_.memory_cgroup)) return false;
  memory_kills_ = tree_.memory_kills();
  return true;
}

// From here on the shim leaves files.
bool Shim::open_files() {
  if (!is_wanted()) return false;
  log_.configure(launch_.header.first_log, launch_.header.log_file_bytes, launch_.header.log_files);
  state_ = open_file(kStateFile, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (state_ < 0) return false;
  // Takes disk space now, so that a full disk cannot keep the state from being written later.
  char reserve[kRecordBytes] = {};
  encode(reserve, false);
  return pwrite(state_, reserve, sizeof(reserve), 0) == static_cast<ssize_t>(sizeof(reserve));
}

bool Shim::open_sockets() {
  if (!notify_.open(launch_) || !link_.listen(launch_.header.agent_uid, epoll_)) return false;
  if (!watch(signals_, kSignals, EPOLLIN) || !watch(link_.listener(), kListener, EPOLLIN) || !watch(notify_.fd(), kNotify, EPOLLIN))
    return false;
  if (!is_socket(kBirthSocket, SOCK_SEQPACKET)) return true;
  link_.adopt(kBirthSocket);
  return fcntl(kBirthSocket, F_SETFD, FD_CLOEXEC) == 0 && watch_agent();
}

bool Shim::open_lease() {
  const LaunchHeader& h = launch_.header;
  return h.lease_ns <= 0 || begin_lease(h.lease_ns, h.epoch, h.first_nonce, false);
}

bool Shim::watch_agent() {
  agent_events_ = EPOLLIN;
  return watch(link_.fd(), kAgent, agent_events_);
}

bool Shim::watch(int fd, uint64_t source, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = source;
  return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace dtrain::shim
