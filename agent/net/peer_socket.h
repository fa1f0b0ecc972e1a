// Limits and time-outs of all sockets between agents; each was measured on libzmq 4.3.4 to be needed.
#pragma once

#include <string>

#include "agent/net/zmq_socket.h"
#include "common/base/time.h"
#include "common/wire/gossip.h"

namespace dtrain::net {

inline constexpr int kHandshakeMs = 2000;  // a connection whose handshake is not done by then is closed
inline constexpr int kConnectTimeoutMs = 1000;
inline constexpr int kTcpMaxRetransmitMs = 5000;  // unacknowledged bytes end the connection (TCP_USER_TIMEOUT)
inline constexpr int kBacklog = 1024;             // connections that wait to be accepted
inline constexpr int kMaxSockets = 4096;
inline constexpr int kIoThreads = 2;  // one for each lane

// Returns false if ZeroMQ refused an option, which only another version of the library does.
bool set_up(ZmqSocket& socket, wire::Lane lane, const std::string& ip);

// "10.0.0.1:7400", as after tcp:// ; the bulk lane is one port above.
std::string address_text(const wire::Endpoint& endpoint, wire::Lane lane);
inline wire::Endpoint on_lane(wire::Endpoint endpoint, wire::Lane lane) {
  if (lane == wire::Lane::bulk) ++endpoint.port;
  return endpoint;
}

}  // namespace dtrain::net
