// What happens to a socket's connections, as ZeroMQ tells it (zmq_socket_monitor). Costs two sockets and 32
// KiB: only for the listening ones and for links to seeds.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/net/zmq_socket.h"

namespace dtrain::net {

// Held for one monitor while nobody reads. Beyond, ZeroMQ's I/O thread waits for us, which also is what
// brakes it when it finds no descriptor for a connection and tries again and again.
inline constexpr int kSocketEventsWaiting = 8192;

struct SocketEvent {
  std::uint16_t what = 0;  // ZMQ_EVENT_*
  std::int32_t value = 0;  // descriptor, errno or protocol error
};

class SocketEvents {
 public:
  // `name`: unique in the context. `events`: mask of ZMQ_EVENT_*.
  static Result<SocketEvents> open(const ZmqContext& context, ZmqSocket& watched, const std::string& name,
                                   int events);
  SocketEvents(SocketEvents&&) = default;
  // Before the watched socket is closed.
  void stop(ZmqSocket& watched);
  int fd() const { return socket_.fd(); }
  std::optional<SocketEvent> next();

 private:
  explicit SocketEvents(ZmqSocket socket) : socket_(std::move(socket)) {}
  ZmqSocket socket_;
};

}  // namespace dtrain::net
