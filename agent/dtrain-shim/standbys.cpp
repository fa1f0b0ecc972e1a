#include "agent/dtrain-shim/standbys.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "agent/dtrain-shim/child.h"

namespace dtrain::shim {

int Standbys::pids_[kMostRanks];
int Standbys::sockets_[kMostRanks];
uint32_t Standbys::count_, Standbys::ready_;

namespace {

// It reads, and answers, at once. The shim does nothing else meanwhile, and its lease runs.
constexpr int64_t kAnswerBound = 100'000'000;
constexpr timeval kCallBound{0, 100'000};
constexpr size_t kAnswerBytes = 4096;  // of a line; a longer one is none of dtrain-warm.py's
constexpr char kIsReady[] = "ready ", kIsCold[] = "cold ", kGo[] = "go\n";

bool begins(const char* text, const char* with) { return strncmp(text, with, strlen(with)) == 0; }

// One line; empty if none came.
void read_line(int socket, int flags, char (&line)[kAnswerBytes]) {
  const ssize_t n = recv(socket, line, sizeof(line) - 1, flags);
  line[n > 0 ? n : 0] = '\0';
  if (n <= 0 || line[n - 1] != '\n') line[0] = '\0';
}

// What a process of this shim's has that was started as a task (child.cpp).
void be_like_a_task(int pid) {
  constexpr long kZero = 20;  // the system call's answer for nice 0; less is nicer
  const long mine = syscall(SYS_getpriority, PRIO_PROCESS, 0);
  // All threads of it: a library's pool has been started, perhaps.
  syscall(SYS_setpriority, PRIO_PGRP, pid, mine > kZero ? 0 : kZero - mine);
  char score[16] = "0";
  if (const int own = open_file("/proc/self/oom_score_adj", O_RDONLY); own >= 0) {
    if (reread(own, score, sizeof(score)) <= 0 || score[0] == '-') memcpy(score, "0", 2);
    close(own);
  }
  Text<64> path;
  path.add("/proc/").add(static_cast<uint64_t>(pid)).add("/oom_score_adj");
  const int fd = open_file(path.c_str(), O_WRONLY);
  if (fd < 0) return;
  (void)!write(fd, score, strlen(score));
  close(fd);
}

// Sends all of it, in the time that is left.
class Sender {
 public:
  explicit Sender(int socket) : socket_(socket), until_(boot_ns() + kAnswerBound) {}
  bool operator()(const void* bytes, size_t size) const {
    const char* at = static_cast<const char*>(bytes);
    while (size > 0) {
      const ssize_t n = send(socket_, at, size, MSG_NOSIGNAL);
      if (n <= 0 || boot_ns() > until_) return false;
      at += n;
      size -= static_cast<size_t>(n);
    }
    return true;
  }
  bool text(const char* text) const { return (*this)(text, strlen(text) + 1); }

 private:
  int socket_;
  int64_t until_;
};

}  // namespace

bool Standbys::start(Launch& launch, int cgroup, int parent) {
  count_ = ready_ = 0;
  while (count_ < launch.processes()) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) break;
    launch.set_rank(count_);
    ChildPlan plan;
    plan.launch = &launch;
    plan.cgroup = cgroup;
    plan.parent = parent;
    plan.standby = pair[1];
    plan.out = plan.err = 1;  // /dev/null, like the shim's own
    const int pid = spawn(plan);
    close(pair[1]);
    if (pid < 0 || plan.step != 0) {
      close(pair[0]);
      errno = pid < 0 ? -pid : plan.error;
      break;
    }
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &kCallBound, sizeof(kCallBound));
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &kCallBound, sizeof(kCallBound));
    pids_[count_] = pid;
    sockets_[count_++] = pair[0];
  }
  if (count_ == launch.processes()) return true;
  const int cause = errno;
  dismiss();
  errno = cause;
  return false;
}

int Standbys::fail(uint32_t index, const char* cause) {
  cold_ = {};
  for (; *cause != '\0'; ++cause) {  // the task's user has written it
    const char shown[2] = {*cause >= ' ' && *cause <= '~' ? *cause : '?', '\0'};
    cold_.add(shown);
  }
  if (pids_[index] != 0) kill(pids_[index], SIGKILL);
  pids_[index] = 0;
  return 0;
}

bool Standbys::answered(uint32_t index) {
  char line[kAnswerBytes];
  read_line(sockets_[index], MSG_DONTWAIT, line);
  if (begins(line, kIsReady)) return true;
  if (char* end = strchr(line, '\n')) *end = '\0';
  fail(index, begins(line, kIsCold) ? line + strlen(kIsCold) : "a standby ended while it prepared");
  return false;
}

// The message: how many bytes follow, how many arguments and variables, then the directory, they, and they; the descriptors with the first
// byte.
bool Standbys::send_start(int socket, const Launch& launch, int out, int err) const {
  uint32_t head[3] = {};
  const uint32_t from = launch.header.target;
  size_t bytes = sizeof(head) - sizeof(head[0]) + strlen(launch.work_dir) + 1;
  for (char** argument = launch.argv + from; *argument != nullptr; ++argument, ++head[1]) bytes += strlen(*argument) + 1;
  for (char** variable = launch.env; *variable != nullptr; ++variable, ++head[2]) bytes += strlen(*variable) + 1;
  head[0] = static_cast<uint32_t>(bytes);

  struct alignas(cmsghdr) Room {
    char bytes[CMSG_SPACE(2 * sizeof(int))];
  } room{};
  iovec part{head, sizeof(head)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes;
  message.msg_controllen = sizeof(room.bytes);
  cmsghdr* const control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int descriptors[2] = {out, err};
  memcpy(CMSG_DATA(control), descriptors, sizeof(descriptors));
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(head))) return false;

  const Sender send(socket);
  if (!send.text(launch.work_dir)) return false;
  for (char** argument = launch.argv + from; *argument != nullptr; ++argument)
    if (!send.text(*argument)) return false;
  for (char** variable = launch.env; *variable != nullptr; ++variable)
    if (!send.text(*variable)) return false;
  return true;
}

int Standbys::become(uint32_t index, const Launch& launch, int out, int err) {
  if (index >= count_ || pids_[index] == 0) return 0;
  const int pid = pids_[index], socket = sockets_[index];
  sockets_[index] = -1;
  be_like_a_task(pid);
  char line[kAnswerBytes] = {};
  const bool sent = send_start(socket, launch, out, err);
  read_line(socket, 0, line);  // also where it had refused before all was sent
  close(socket);
  if (sent && strcmp(line, kGo) == 0) {
    pids_[index] = 0;
    return pid;
  }
  if (char* end = strchr(line, '\n')) *end = '\0';
  return fail(index, begins(line, kIsCold) ? line + strlen(kIsCold) : "a standby did not answer");
}

void Standbys::ended(int pid) {
  for (uint32_t i = 0; i < count_; ++i) {
    if (pids_[i] != pid) continue;
    pids_[i] = 0;
    cold_ = {};
    cold_.add("a standby ended");
  }
}

void Standbys::dismiss() {
  for (uint32_t i = 0; i < count_; ++i) {
    if (pids_[i] != 0) kill(pids_[i], SIGKILL);
    if (sockets_[i] >= 0) close(sockets_[i]);
  }
  count_ = ready_ = 0;
}

bool Standbys::wait_with(int socket, uint64_t blocked) {
  static pollfd watched[1 + kMostRanks];
  watched[0] = {socket, POLLIN, 0};
  for (uint32_t i = 0; i < count_; ++i) watched[1 + i] = {sockets_[i], 0, 0};  // its end alone
  syscall(SYS_ppoll, watched, 1 + count_, nullptr, &blocked, sizeof(blocked));
  if (watched[0].revents != 0) return true;
  for (uint32_t i = 0; i < count_; ++i)
    if (watched[1 + i].revents != 0) return false;
  return true;
}

bool Standbys::close_others(int last) const {
  for (int from = last + 1;;) {
    int next = INT_MAX;
    for (uint32_t i = 0; i < count_; ++i)
      if (sockets_[i] >= from && sockets_[i] < next) next = sockets_[i];
    if (next == INT_MAX) return syscall(SYS_close_range, from, UINT32_MAX, 0) == 0;
    if (next > from && syscall(SYS_close_range, from, next - 1, 0) != 0) return false;
    from = next + 1;
  }
}

}  // namespace dtrain::shim
