#include "agent/net/bridge.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace dtrain::net {

Bridge::~Bridge() { ::close(local_); }

void Bridge::hand_on() {
  while (!end_.waiting().empty()) {
    const ssize_t n = ::send(local_, end_.waiting().data(), end_.waiting().size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    // The local side closed, maybe with last bytes that take() still reads: data for it is dropped.
    end_.delivered(n < 0 ? end_.waiting().size() : static_cast<std::size_t>(n));
  }
}

void Bridge::give(Instant now, const Send& send, std::string message) {
  switch (send(message)) {
    case ZmqSocket::Sent::done: return;
    case ZmqSocket::Sent::busy:
      held_ = std::move(message);
      retry_at_ = now + kBridgeRetry;
      return;
    case ZmqSocket::Sent::unreachable:
    case ZmqSocket::Sent::failed: lost_ = true; return;
  }
}

// Takes from the local side what the other end accepts.
void Bridge::take(Instant now, const Send& send) {
  std::array<char, wire::kBridgeChunkBytes> chunk;
  while (!heard_all_ && !held_ && !lost_ && end_.room() > 0) {
    const ssize_t n = ::recv(local_, chunk.data(), end_.room(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) heard_all_ = true;
    else give(now, send, wire::encode_bridge(end_.say({chunk.data(), static_cast<std::size_t>(n)})));
  }
}

Bridge::State Bridge::pump(Instant now, const Send& send) {
  hand_on();
  if (end_.ended() && end_.waiting().empty()) return State::ended;
  if (end_.silent(now)) return State::silent;
  if (held_) give(now, send, *std::exchange(held_, std::nullopt));
  take(now, send);
  while (!held_ && !lost_) {
    const auto message = end_.next(now);
    if (!message) break;
    give(now, send, wire::encode_bridge(*message));
  }
  if (heard_all_ && !said_end_ && !held_ && !lost_) {
    said_end_ = true;
    give(now, send, farewell());
  }
  if (lost_) return State::lost;
  return said_end_ && !held_ ? State::closed : State::open;
}

}  // namespace dtrain::net
