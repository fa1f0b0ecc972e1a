// Carries bytes between a local socket and the other end of a bridge (common/relay/bridge_end.h), whoever sends its messages.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "agent/net/zmq_socket.h"
#include "common/relay/bridge_end.h"

namespace dtrain::net {

// Changes only: a local side that has closed while the other end takes nothing would else be told of for ever.
inline constexpr std::uint32_t kBridgeEdges = EPOLLIN | EPOLLOUT | EPOLLET;
inline constexpr Duration kBridgeRetry = 20ms;  // a connection whose queue was full is tried again

// ZeroMQ counts what CURVE adds to a message in the limit of its frame: "\x07MESSAGE", the nonce, the authenticator and the flags
// (RFC 26, "MESSAGE command").
inline constexpr std::size_t kCurveBytes = 8 + 8 + 16 + 1;
inline constexpr std::int64_t kBridgeFrameBytes = static_cast<std::int64_t>(wire::kBridgeMessageBytes + kCurveBytes);

class Bridge {
 public:
  // Sends one message to the other end; never waits.
  using Send = std::function<ZmqSocket::Sent(std::string_view message)>;

  // Owns `local`, a stream socket.
  Bridge(int local, Instant now) : local_(local), end_(now) {}
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  // Pump after each change of it (epoll: kBridgeEdges), each received message and at the deadline.
  int local() const { return local_; }
  // ErrorCode::invalid: against the agreement.
  Status receive(Instant now, const wire::BridgeMessage& message) { return end_.receive(now, message); }

  // Moves what can be moved. What there is to know then:
  enum class State : unsigned char {
    open,
    ended,   // by the other end, and all that it had said was handed on
    closed,  // by the local side, and all that it had said was sent, and that it ended
    lost,    // the other end is gone
    silent,  // likewise, so far as can be told
  };
  State pump(Instant now, const Send& send);
  Instant deadline() const { return held_ ? retry_at_ : end_.deadline(); }
  // For who stops before it ends by itself.
  static std::string farewell() { return wire::encode_bridge({wire::BridgeWord::end, "", 0}); }

 private:
  void hand_on();
  void give(Instant now, const Send& send, std::string message);
  void take(Instant now, const Send& send);

  int local_;
  relay::BridgeEnd end_;
  std::optional<std::string> held_;  // a message for which the connection's queue had no room
  Instant retry_at_{};
  bool heard_all_ = false;  // of the local side
  bool said_end_ = false, lost_ = false;
};

}  // namespace dtrain::net
