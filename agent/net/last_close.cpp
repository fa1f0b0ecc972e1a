#include "agent/net/last_close.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace dtrain::net {
namespace {

constexpr int kPassRights = 83;                 // SO_PASSRIGHTS, which not every header has
constexpr int kServerSocket = 3;                // in the helper, which has nothing else of the agent open
constexpr const char* kName = "dtraind-close";  // in ps; at most 15 characters

// A byte, with a descriptor to be closed, or without one: the agent has closed its own copy of the previous one.
struct ControlMessage {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  ControlMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
  }
};

// Waits until all others have closed their copies, and exits.
[[noreturn]] void hold(int barrier) {
  char byte;
  while (::read(barrier, &byte, 1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

// On any failure it exits by itself: that closes the sockets, too, and the agent starts another one.
[[noreturn]] void serve(int socket) {
  if (::dup2(socket, kServerSocket) < 0 || ::close_range(kServerSocket + 1, ~0u, 0) != 0) ::_exit(1);
  ::prctl(PR_SET_NAME, kName);
  int held = -1;
  for (int closing = 0;;) {
    while (closing > 0 && ::waitpid(-1, nullptr, closing < kMostClosing ? WNOHANG : 0) > 0) --closing;
    ControlMessage message;
    message.header.msg_control = message.control;
    message.header.msg_controllen = sizeof message.control;
    const ssize_t n = ::recvmsg(kServerSocket, &message.header, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n != 1) ::_exit(0);
    if (const cmsghdr* head = CMSG_FIRSTHDR(&message.header); head != nullptr) {
      ::memcpy(&held, CMSG_DATA(head), sizeof held);
      continue;
    }
    int barrier[2];
    if (held < 0 || ::pipe2(barrier, O_CLOEXEC) != 0) ::_exit(1);
    const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child < 0) ::_exit(1);
    if (child == 0) {
      ::close(kServerSocket);
      ::close(barrier[1]);
      hold(barrier[0]);
    }
    ++closing;
    ::close(std::exchange(held, -1));
    ::close(barrier[0]);
    ::close(barrier[1]);
  }
}

}  // namespace

void refuse_descriptors(int socket) {
  const int off = 0;
  (void)::setsockopt(socket, SOL_SOCKET, kPassRights, &off, sizeof off);
}

Result<LastClose> LastClose::of(int listener) {
  int passes = 1;
  socklen_t size = sizeof passes;
  LastClose made(::getsockopt(listener, SOL_SOCKET, kPassRights, &passes, &size) != 0 || passes != 0);
  if (made.needed_ && !made.begin())
    return fail(ErrorCode::io, std::string("could not begin a helper process: ") + ::strerror(errno),
                "raise the limits of processes and open files");
  return made;
}

LastClose::LastClose(LastClose&& other) noexcept
    : needed_(other.needed_),
      pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      closed_untold_(other.closed_untold_),
      to_close_(std::move(other.to_close_)) {}

// What still waits stays open: the process is about to exit.
LastClose::~LastClose() { end(); }

bool LastClose::begin() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  pid_ = ::fork();
  if (pid_ == 0) serve(ends[1]);
  ::close(ends[1]);
  if (pid_ < 0) ::close(ends[0]);
  if (pid_ < 0) return false;
  socket_ = ends[0];
  closed_untold_ = false;
  return true;
}

// The helper exits by itself when it has handled what was sent, or was killed already.
void LastClose::end() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), nullptr, WNOHANG);
}

void LastClose::prepare(int connection) const {
  const int on = 1;
  // Otherwise an out-of-band byte, and descriptors with it, would be dropped on the way to the next one.
  if (needed_) ::setsockopt(connection, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
}

// A peek drops nothing, and sees no further than the first message with descriptors.
ssize_t LastClose::receive(int connection, char* bytes, std::size_t size) const {
  if (!needed_) return ::recv(connection, bytes, size, MSG_DONTWAIT);
  iovec part{bytes, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t seen = ::recvmsg(connection, &message, MSG_DONTWAIT | MSG_PEEK);
  if (seen <= 0) return seen;
  if ((message.msg_flags & MSG_CTRUNC) != 0) return errno = EPROTO, -1;
  return ::recv(connection, bytes, static_cast<std::size_t>(seen), MSG_DONTWAIT);
}

void LastClose::close(int connection) {
  int unread = 0;
  if (needed_) ::shutdown(connection, SHUT_RDWR);  // nothing can arrive from here on
  if (!needed_ || (::ioctl(connection, FIONREAD, &unread) == 0 && unread == 0)) {
    ::close(connection);
    return;
  }
  to_close_.push_back(connection);
  pass_on();
}

// Connections in its queue may have sent something already.
void LastClose::close_listener(int listener) {
  if (!needed_) {
    ::close(listener);
    return;
  }
  to_close_.push_back(listener);
  pass_on();
}

bool LastClose::tell(int descriptor) {
  ControlMessage message;
  if (descriptor >= 0) {
    message.header.msg_control = message.control;
    message.header.msg_controllen = sizeof message.control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message.header);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof descriptor);
    ::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(socket_, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return true;
  if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM) end();
  return false;
}

void LastClose::pass_on() {
  while (closed_untold_ || !to_close_.empty()) {
    if (socket_ < 0 && !begin()) return;
    if (closed_untold_) {
      if (!tell(-1)) return;
      closed_untold_ = false;
      continue;
    }
    if (!tell(to_close_.front())) return;
    ::close(to_close_.front());
    to_close_.pop_front();
    closed_untold_ = true;
  }
}

}  // namespace dtrain::net
