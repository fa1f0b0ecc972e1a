// Carries bytes between a local socket and the other end of a bridge (common/relay/bridge_end.h); `Send` sends its messages.
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

// Edge-triggered: a local side that has closed while the other end takes nothing would otherwise be reported for ever.
inline constexpr std::uint32_t kBridgeEdges = EPOLLIN | EPOLLOUT | EPOLLET;
inline constexpr Duration kBridgeRetry = 20ms;  // pause before a connection whose queue was full is tried again

// ZeroMQ includes what CURVE adds to a message in the limit of a frame: "\x07MESSAGE", the nonce, the authenticator
// and the flags (RFC 26, "MESSAGE command").
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

  // To be watched with kBridgeEdges. Call pump() after each event of it, after each received message, and at the deadline.
  int local() const { return local_; }
  // ErrorCode::invalid: the message breaks the protocol.
  Status receive(Instant now, const wire::BridgeMessage& message) { return end_.receive(now, message); }

  // Moves what can be moved, and returns the state.
  enum class State : unsigned char {
    open,
    ended,   // the other end ended it, and all its bytes were handed on
    closed,  // the local side closed, and all its bytes and the end were sent
    lost,    // the connection to the other end is gone
    silent,  // the other end does not answer
  };
  State pump(Instant now, const Send& send);
  Instant deadline() const { return held_ ? retry_at_ : end_.deadline(); }
  // The last message of a side that stops early.
  static std::string farewell() { return wire::encode_bridge({wire::BridgeWord::end, "", 0}); }

 private:
  void hand_on();
  void give(Instant now, const Send& send, std::string message);
  void take(Instant now, const Send& send);

  int local_;
  relay::BridgeEnd end_;
  std::optional<std::string> held_;  // a message for which the connection's queue had no room
  Instant retry_at_{};
  bool heard_all_ = false;  // the local side has sent all its bytes
  bool said_end_ = false, lost_ = false;
};

}  // namespace dtrain::net
