// What all sockets between agents have in common: limits and time-outs, each measured on libzmq 4.3.4 to be
// needed.
#pragma once

#include <string>

#include "agent/net/zmq_socket.h"
#include "common/base/time.h"
#include "common/wire/gossip.h"

namespace dtrain::net {

inline constexpr int kHandshakeMs = 2000;  // a connection that has not said who it is by then is closed
inline constexpr int kConnectTimeoutMs = 1000;
inline constexpr int kTcpMaxRetransmitMs =
    5000;                              // unacknowledged bytes end the connection (TCP_USER_TIMEOUT)
inline constexpr int kBacklog = 1024;  // connections that wait to be accepted
inline constexpr int kMaxSockets = 4096;
inline constexpr int kIoThreads = 2;  // one a lane

// False: ZeroMQ refused an option, which only a library of another version does.
bool set_up(ZmqSocket& socket, wire::Lane lane, const std::string& ip);

// "10.0.0.1:7400", as after tcp:// ; the bulk lane is one port above.
std::string address_text(const wire::Endpoint& endpoint, wire::Lane lane);
inline wire::Endpoint on_lane(wire::Endpoint endpoint, wire::Lane lane) {
  if (lane == wire::Lane::bulk) ++endpoint.port;
  return endpoint;
}

}  // namespace dtrain::net
