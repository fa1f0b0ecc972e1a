#include "agent/dtrain-shim/passed.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

namespace dtrain::shim {

namespace {

constexpr int kSocket = 0, kGo = 1, kHeld = 2;  // all that the child has open

struct alignas(cmsghdr) Room {
  char bytes[CMSG_SPACE(sizeof(int) * kPassedDescriptors) + CMSG_SPACE(sizeof(ucred))];
};

// Takes copies of the descriptors, reports that, and exits when the shim has dropped the message.
[[noreturn]] void hold(int socket, int go, int held) {
  // All three are above the standard ones, which are /dev/null.
  if (dup2(socket, kSocket) < 0 || dup2(go, kGo) < 0 || dup2(held, kHeld) < 0) _exit(1);
  if (syscall(SYS_close_range, kHeld + 1, UINT32_MAX, 0) != 0) _exit(1);
  Room room;
  char byte = 0;
  iovec part{&byte, sizeof(byte)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes;
  message.msg_controllen = sizeof(room.bytes);
  const ssize_t n = recvmsg(kSocket, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 || (message.msg_flags & MSG_CTRUNC) != 0 || write(kHeld, &byte, 1) != 1) _exit(1);
  while (read(kGo, &byte, 1) < 0 && errno == EINTR) {
  }
  _exit(0);
}

}  // namespace

// These children are not reaped like the task's: no signal reports their end, and waiting for the task's children
// does not see them.
int Passed::reap() {
  while (holders_ > 0 && waitpid(-1, nullptr, __WCLONE | WNOHANG) > 0) --holders_;
  return holders_;
}

bool Passed::drop_message(int socket) {
  if (reap() >= kMostHolders) return false;
  int go[2], held[2];
  if (pipe2(go, O_CLOEXEC) != 0) return false;
  if (pipe2(held, O_CLOEXEC) != 0) {
    close(go[0]);
    close(go[1]);
    return false;
  }
  const long pid = syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) hold(socket, go[0], held[1]);
  close(go[0]);
  close(held[1]);
  char byte;
  const bool all = pid > 0 && read(held[0], &byte, 1) == 1;
  if (all) (void)recv(socket, nullptr, 0, MSG_DONTWAIT);
  close(held[0]);
  close(go[1]);
  if (pid > 0) ++holders_;
  return all;
}

}  // namespace dtrain::shim
