#include "agent/net/listen_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/net/ip_address.h"
#include "agent/net/peer_socket.h"

namespace dtrain::net {
namespace {

constexpr int kTurnedAwayAtOnce = 256;

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
    return could_not(ErrorCode::unavailable, ::strerror(cause),
                     "another agent runs there? choose another port with --listen");
  if (cause == EADDRNOTAVAIL)
    return could_not(ErrorCode::invalid, ::strerror(cause), "give --listen an address of this host");
  return could_not(ErrorCode::io, ::strerror(cause), "");
}

ListenSocket::ListenSocket(int fd) : fd_(fd) {
  spares_.fill(-1);
  refill();
}

ListenSocket::ListenSocket(ListenSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), spares_(other.spares_) {
  other.spares_.fill(-1);
}

ListenSocket::~ListenSocket() {
  if (fd_ >= 0) ::close(fd_);
  for (const int spare : spares_)
    if (spare >= 0) ::close(spare);
}

void ListenSocket::refill() {
  for (int& spare : spares_) {
    if (spare < 0) spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (spare < 0) return;
  }
}

bool ListenSocket::has_spare() const {
  return std::ranges::any_of(spares_, [](int spare) { return spare >= 0; });
}

int ListenSocket::duplicate() const {
  return ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
}

int ListenSocket::turn_away() {
  int turned = 0;
  for (int& spare : spares_) {
    if (spare < 0) continue;
    ::close(std::exchange(spare, -1));
    int fd = -1;
    while (turned < kTurnedAwayAtOnce &&
           (fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
      ::close(fd);
      ++turned;
    }
    if (turned == kTurnedAwayAtOnce || errno == EAGAIN || errno == EWOULDBLOCK) break;
  }
  refill();
  return turned;
}

}  // namespace dtrain::net
