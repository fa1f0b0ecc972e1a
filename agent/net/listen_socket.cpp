#include "agent/net/listen_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "agent/net/ip_address.h"
#include "agent/net/peer_socket.h"

namespace dtrain::net {
namespace {

constexpr int kCouldNot = 255;  // exit status of the process that turns away

// The rest of the child's life. Only calls that are permitted between fork() and exec().
[[noreturn]] void turn_away_and_exit(int listener) {
  ::close(listener == 0 ? 1 : 0);  // any descriptor but the listener: one is enough
  int turned = 0;
  while (turned < kTurnedAwayAtOnce) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      ::close(fd);
      ++turned;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      ::_exit(kCouldNot);
    }
  }
  ::_exit(turned);
}

}  // namespace

Result<ListenSocket> ListenSocket::open(const wire::Endpoint& at) {
  const auto could_not = [&](ErrorCode code, const std::string& cause, const std::string& next) {
    return fail(code, "could not listen on " + at.text() + ": " + cause, next);
  };
  const auto address = SocketAddress::of(at);
  if (!address) return could_not(ErrorCode::invalid, "not a numeric address", "give --listen IP:PORT");
  const int fd = ::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return could_not(ErrorCode::io, ::strerror(errno), "");
  ListenSocket socket(fd);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->family() == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd, address->get(), address->size()) == 0 && ::listen(fd, kBacklog) == 0) return socket;
  const int cause = errno;
  if (cause == EADDRINUSE)
    return could_not(ErrorCode::unavailable, ::strerror(cause), "another agent runs there? choose another port with --listen");
  if (cause == EADDRNOTAVAIL) return could_not(ErrorCode::invalid, ::strerror(cause), "give --listen an address of this host");
  return could_not(ErrorCode::io, ::strerror(cause), "");
}

int ListenSocket::duplicate() const { return ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0); }

// In a process of its own, whose table of descriptors is a copy: a descriptor freed in this process would be taken by
// ZeroMQ's thread, which waits for one, for another stranger.
std::optional<int> ListenSocket::turn_away() const {
  const pid_t child = ::fork();
  if (child < 0) return std::nullopt;
  if (child == 0) turn_away_and_exit(fd_.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) == kCouldNot) return std::nullopt;
  return WEXITSTATUS(status);
}

}  // namespace dtrain::net
