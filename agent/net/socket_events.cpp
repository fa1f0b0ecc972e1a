#include "agent/net/socket_events.h"

#include <cstring>
#include <utility>

namespace dtrain::net {

Result<SocketEvents> SocketEvents::open(const ZmqContext& context, ZmqSocket& watched, const std::string& name, int events) {
  auto socket = ZmqSocket::open(context, ZMQ_PAIR);
  if (!socket) return fail(socket.error());
  const std::string endpoint = "inproc://" + name;
  // "Too many" makes operators raise limits: used only if limits are the cause.
  const auto could_not = [](const std::string& cause) {
    const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return fail(exhausted ? ErrorCode::limit : ErrorCode::io, "could not watch connections: " + cause,
                exhausted ? "raise LimitNOFILE of the agent" : "");
  };
  if (!socket->set(ZMQ_LINGER, 0) || !socket->set(ZMQ_RCVHWM, kSocketEventsWaiting) ||
      zmq_socket_monitor(watched.get(), endpoint.c_str(), events) != 0)
    return could_not(zmq_cause());
  if (!socket->connect(endpoint)) {
    const auto error = could_not(zmq_cause());
    zmq_socket_monitor(watched.get(), nullptr, 0);
    return error;
  }
  return SocketEvents(std::move(*socket));
}

void SocketEvents::stop(ZmqSocket& watched) {
  // First make room: the I/O thread may wait for it while it holds the lock that stopping needs.
  while (next()) continue;
  zmq_socket_monitor(watched.get(), nullptr, 0);
  socket_.close();
}

std::optional<SocketEvent> SocketEvents::next() {
  Frame first;
  if (!socket_.receive(first)) return std::nullopt;
  SocketEvent event;
  const std::string_view bytes = first.bytes();
  if (bytes.size() >= sizeof event.what + sizeof event.value) {
    std::memcpy(&event.what, bytes.data(), sizeof event.what);
    std::memcpy(&event.value, bytes.data() + sizeof event.what, sizeof event.value);
  }
  for (bool more = first.more(); more;) {  // the endpoint: known
    Frame rest;
    more = socket_.receive(rest) && rest.more();
  }
  return event;
}

}  // namespace dtrain::net
