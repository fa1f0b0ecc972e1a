#include "agent/net/router.h"

#include <utility>

#include "agent/net/peer_links.h"
#include "agent/net/peer_socket.h"
#include "agent/net/zap.h"

namespace dtrain::net {
namespace {

// ROUTER's own names of connections are a zero and a 32-bit number that counts up, so a path is the name itself and
// no table is needed: a vanished connection's name is not reused. A peer that names itself has no path.
constexpr std::size_t kRouterNameBytes = 5;
constexpr int kLaneShift = 32;

gossip::ReplyPath path_of(std::string_view name, wire::Lane lane) {
  if (name.size() != kRouterNameBytes || name[0] != 0) return 0;
  std::uint64_t path = lane == wire::Lane::gossip ? 1 : 2;
  for (std::size_t i = 1; i < kRouterNameBytes; ++i) path = path << 8 | static_cast<unsigned char>(name[i]);
  return path;
}

std::string name_of(gossip::ReplyPath path) {
  std::string name(kRouterNameBytes, '\0');
  for (std::size_t i = kRouterNameBytes - 1; i > 0; --i, path >>= 8) name[i] = static_cast<char>(path & 0xff);
  return name;
}

constexpr std::string_view kRouterHandshakeNext =
    "its key file differs from ours, or it runs without one, or it is no agent: compare `sha256sum` of both key files";

const KeyPair* served(const KeyRing& keys) { return keys.plain() ? nullptr : &keys.cluster(0); }

}  // namespace

bool Router::is_path(gossip::ReplyPath path, wire::Lane lane) { return path >> kLaneShift == (lane == wire::Lane::gossip ? 1u : 2u); }

Result<std::unique_ptr<Router>> Router::open(const ZmqContext& context, Poller& poller, const wire::Endpoint& listen, wire::Lane lane,
                                             const KeyRing& keys) {
  BoundRouter::Options options;
  options.at = on_lane(listen, lane);
  options.serial = static_cast<std::uint64_t>(lane);
  options.name = lane == wire::Lane::gossip ? "gossip" : "bulk";
  options.set_up = [lane, ip = listen.ip](ZmqSocket& socket) {
    return net::set_up(socket, lane, ip) && socket.set(ZMQ_ZAP_DOMAIN, std::string_view(kZapDomain));
  };
  options.handshake_next = kRouterHandshakeNext;
  auto bound = BoundRouter::open(context, poller, std::move(options), served(keys));
  if (!bound) return fail(bound.error());
  return std::unique_ptr<Router>(new Router(std::move(*bound), lane));
}

Status Router::serve(const KeyRing& keys) { return bound_->serve(served(keys)); }

void Router::service(Instant now, const KeyRing& keys) { bound_->service(now, served(keys)); }

bool Router::receive(Instant now, Gate& gate, std::vector<gossip::Input>& out) {
  const std::size_t most = lane_ == wire::Lane::gossip ? kReceivedPerTurn : kBulkPerTurn;
  for (std::size_t i = 0; i < most; ++i) {
    Frame name;
    if (!bound_->socket().receive(name)) return false;
    if (!name.more()) continue;
    gate.pass(now, bound_->socket(), {Gate::Side::Kind::inbound, {}, path_of(name.bytes(), lane_)}, out);
  }
  return true;
}

bool Router::reply(gossip::ReplyPath path, std::string_view header, std::string_view body) {
  switch (bound_->socket().send(name_of(path), true)) {
    case ZmqSocket::Sent::done: break;
    case ZmqSocket::Sent::busy: return false;
    default: return true;
  }
  // A ROUTER that accepted the name accepts the rest too.
  bound_->socket().send(header, true);
  bound_->socket().send(body, false);
  return true;
}

}  // namespace dtrain::net
