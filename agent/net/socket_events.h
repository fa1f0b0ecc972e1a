// Events of a socket's connections, as ZeroMQ reports them (zmq_socket_monitor). Each monitor costs two sockets and
// 32 KiB, so only listening sockets and links to seeds have one.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/net/zmq_socket.h"

namespace dtrain::net {

// Events of one monitor that wait unread. Beyond, ZeroMQ's I/O thread waits for this process, which also slows it
// down when it finds no descriptor for a connection and tries again and again.
inline constexpr int kSocketEventsWaiting = 8192;

struct SocketEvent {
  std::uint16_t what = 0;  // ZMQ_EVENT_*
  std::int32_t value = 0;  // descriptor, errno or protocol error
};

class SocketEvents {
 public:
  // `name`: unique in the context. `events`: mask of ZMQ_EVENT_*.
  static Result<SocketEvents> open(const ZmqContext& context, ZmqSocket& watched, const std::string& name, int events);
  SocketEvents(SocketEvents&&) = default;
  // To be called before the watched socket is closed.
  void stop(ZmqSocket& watched);
  int fd() const { return socket_.fd(); }
  std::optional<SocketEvent> next();

 private:
  explicit SocketEvents(ZmqSocket socket) : socket_(std::move(socket)) {}
  ZmqSocket socket_;
};

}  // namespace dtrain::net
