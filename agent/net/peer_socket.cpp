#include "agent/net/peer_socket.h"

#include "agent/net/peer_links.h"
#include "common/wire/peer.h"

namespace dtrain::net {

bool set_up(ZmqSocket& socket, wire::Lane lane, const std::string& ip) {
  const bool bulk = lane == wire::Lane::bulk;
  static_assert(wire::kHeaderBytes <= wire::kGossipMessageBytes);
  const auto largest = bulk ? std::max(wire::kBulkMessageBytes, wire::kRaftMessageBytes) : wire::kGossipMessageBytes;
  return socket.set(ZMQ_LINGER, 0) && socket.set(ZMQ_SNDHWM, kPeerHighWater) && socket.set(ZMQ_RCVHWM, kPeerHighWater) &&
         socket.set(ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(largest)) && socket.set(ZMQ_HANDSHAKE_IVL, kHandshakeMs) &&
         socket.set(ZMQ_TCP_MAXRT, kTcpMaxRetransmitMs) && socket.set(ZMQ_BACKLOG, kBacklog) &&
         // A bit for each I/O thread: the second one carries bulk, so that no pong waits for it.
         socket.set(ZMQ_AFFINITY, std::int64_t{bulk ? 2 : 1}) && (ip.find(':') == std::string::npos || socket.set(ZMQ_IPV6, 1));
}

std::string address_text(const wire::Endpoint& endpoint, wire::Lane lane) { return on_lane(endpoint, lane).text(); }

}  // namespace dtrain::net
