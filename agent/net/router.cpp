#include "agent/net/router.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/net/ip_address.h"
#include "agent/net/peer_links.h"
#include "agent/net/peer_socket.h"
#include "agent/net/zap.h"

namespace dtrain::net {
namespace {

// ROUTER's own names of connections are a zero and a 32-bit number that counts up, so that a path is the name
// itself and no table is needed: a vanished connection's name does not come back. A peer that names itself
// has no path.
constexpr std::size_t kNameBytes = 5;
constexpr int kLaneShift = 32;

gossip::ReplyPath path_of(std::string_view name, wire::Lane lane) {
  if (name.size() != kNameBytes || name[0] != 0) return 0;
  std::uint64_t path = lane == wire::Lane::gossip ? 1 : 2;
  for (std::size_t i = 1; i < kNameBytes; ++i) path = path << 8 | static_cast<unsigned char>(name[i]);
  return path;
}

std::string name_of(gossip::ReplyPath path) {
  std::string name(kNameBytes, '\0');
  for (std::size_t i = kNameBytes - 1; i > 0; --i, path >>= 8) name[i] = static_cast<char>(path & 0xff);
  return name;
}

constexpr Duration kShutFor = 1s;
constexpr int kWatched = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_ACCEPT_FAILED | ZMQ_EVENT_DISCONNECTED |
                         ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                         ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

}  // namespace

bool Router::is_path(gossip::ReplyPath path, wire::Lane lane) {
  return path >> kLaneShift == (lane == wire::Lane::gossip ? 1u : 2u);
}

Result<std::unique_ptr<Router>> Router::open(const ZmqContext& context, Poller& poller,
                                             const wire::Endpoint& listen, wire::Lane lane,
                                             const KeyRing& keys) {
  const wire::Endpoint at = on_lane(listen, lane);
  auto listener = ListenSocket::open(at);
  if (!listener) return fail(listener.error());
  auto socket = ZmqSocket::open(context, ZMQ_ROUTER);
  if (!socket) return fail(socket.error());
  if (!set_up(*socket, lane, at.ip) || !socket->set(ZMQ_ROUTER_MANDATORY, 1) ||
      !socket->set(ZMQ_ZAP_DOMAIN, std::string_view(kZapDomain)))
    return fail(ErrorCode::internal, "could not set up socket: " + zmq_cause());
  auto events = SocketEvents::open(context, *socket,
                                   lane == wire::Lane::gossip ? "events-gossip" : "events-bulk", kWatched);
  if (!events) return fail(events.error());
  const auto serial = static_cast<std::uint64_t>(lane);
  std::unique_ptr<Router> router(new Router(poller, std::move(*listener), std::move(*socket),
                                            std::move(*events), "tcp://" + at.text(), lane));
  if (auto added = poller.add(router->socket_.fd(), EPOLLIN, {PollTag::Kind::router, serial}); !added)
    return fail(added.error());
  if (auto added = poller.add(router->events_.fd(), EPOLLIN, {PollTag::Kind::router_monitor, serial}); !added)
    return fail(added.error());
  if (auto bound = router->bind(keys); !bound) return fail(bound.error());
  return router;
}

Router::Router(Poller& poller, ListenSocket listener, ZmqSocket socket, SocketEvents events,
               std::string endpoint, wire::Lane lane)
    : poller_(poller),
      listener_(std::move(listener)),
      socket_(std::move(socket)),
      events_(std::move(events)),
      endpoint_(std::move(endpoint)),
      lane_(lane) {}

Router::~Router() {
  poller_.remove(events_.fd());
  poller_.remove(socket_.fd());
  events_.stop(socket_);
}

Status Router::bind(const KeyRing& keys) {
  const int fd = listener_.duplicate();
  if (fd < 0)
    return fail(ErrorCode::limit, "could not listen on " + endpoint_ + ": " + ::strerror(errno),
                "raise LimitNOFILE of the agent");
  bool set = socket_.set(ZMQ_USE_FD, fd);
  if (set && !keys.plain()) {
    const KeyPair& pair = keys.cluster(0);
    set = socket_.set(ZMQ_CURVE_SERVER, 1) &&
          socket_.set(ZMQ_CURVE_SECRETKEY,
                      {reinterpret_cast<const char*>(pair.secret_key.data()), pair.secret_key.size()});
  }
  if (set && socket_.bind(endpoint_)) {
    bound_ = true;
    return {};
  }
  const std::string cause = zmq_cause();
  ::close(fd);
  return fail(ErrorCode::io, "could not listen on " + endpoint_ + ": " + cause);
}

Status Router::serve(const KeyRing& keys) {
  // The listening socket itself stays open: who connects in between waits in its queue.
  if (bound_) socket_.unbind(endpoint_);
  bound_ = false;
  auto bound = bind(keys);
  shut_until_ = bound ? kNever : Instant{};  // service() tries again
  return bound;
}

// Nobody can be turned away: libzmq would try to accept for ever, at the cost of a CPU. Who is
// connected is let go, who comes waits in the listening socket's queue.
void Router::shut(Instant now) {
  if (!bound_) return;
  socket_.unbind(endpoint_);
  bound_ = false;
  shut_until_ = now + kShutFor;
}

void Router::service(Instant now, const KeyRing& keys) {
  if (shut_until_ > now) return;
  shut_until_ = bind(keys) ? kNever : now + kShutFor;
}

bool Router::receive(Instant now, Gate& gate, std::vector<gossip::Input>& out) {
  const std::size_t most = lane_ == wire::Lane::gossip ? kReceivedPerTurn : kBulkPerTurn;
  for (std::size_t i = 0; i < most; ++i) {
    Frame name;
    if (!socket_.receive(name)) return false;
    if (!name.more()) continue;
    gate.pass(now, socket_, {Gate::Side::Kind::inbound, {}, path_of(name.bytes(), lane_)}, out);
  }
  return true;
}

bool Router::reply(gossip::ReplyPath path, std::string_view header, std::string_view body) {
  switch (socket_.send(name_of(path), true)) {
    case ZmqSocket::Sent::done:
      break;
    case ZmqSocket::Sent::busy:
      return false;
    default:
      return true;
  }
  // A ROUTER that took the name takes the rest too.
  socket_.send(header, true);
  socket_.send(body, false);
  return true;
}

// A flood of strangers holds some 14 KiB for each of their connections while they last. The allocator would
// keep it.
void Router::give_memory_back() {
  inbound_peak_ = std::max(inbound_peak_, inbound_.size());
  if (inbound_peak_ < kInboundFlood || inbound_.size() > inbound_peak_ / 4) return;
  inbound_peak_ = inbound_.size();
  ::malloc_trim(0);
}

bool Router::watch(Instant now, QuietLog& log) {
  int exhausted = 0;  // errno of an accept() that found no descriptor; there may be thousands of them
  const bool more = watch_events(now, log, exhausted);
  if (exhausted == 0) return more;
  const std::optional<int> turned = listener_.turn_away();
  turned_away_ += static_cast<std::uint64_t>(turned.value_or(0));
  log.warn(
      now, "net.descriptors-exhausted", ::strerror(exhausted), endpoint_,
      "connections are turned away until some are free: raise LimitNOFILE of the agent, or see who connects");
  if (!turned) shut(now);
  return more;
}

bool Router::watch_events(Instant now, QuietLog& log, int& exhausted) {
  for (std::size_t i = 0; i < kSocketEventsPerTurn; ++i) {
    const auto event = events_.next();
    if (!event) return false;
    switch (event->what) {
      case ZMQ_EVENT_ACCEPTED:
        if (inbound_.size() < kInboundNamed || inbound_.contains(event->value))
          inbound_[event->value] = peer_ip(event->value);
        inbound_peak_ = std::max(inbound_peak_, inbound_.size());
        break;
      case ZMQ_EVENT_ACCEPT_FAILED:
        if (event->value == EMFILE || event->value == ENFILE || event->value == ENOMEM)
          exhausted = event->value;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        failed_ = true;
        continue;
      case ZMQ_EVENT_DISCONNECTED: {
        const auto found = inbound_.find(event->value);
        if (failed_) {
          ++handshakes_failed_;
          log.warn(now, "net.refused", "handshake",
                   found == inbound_.end() || found->second.empty() ? "unknown" : found->second,
                   "its key file differs from ours, or it runs without one, or it is no agent: "
                   "compare `sha256sum` of both key files");
        }
        if (found != inbound_.end()) inbound_.erase(found);
        give_memory_back();
        break;
      }
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        // Closed or silent: somebody looked whether we are there, or hung up first. Nothing to tell.
        ++handshakes_incomplete_;
        break;
      default:  // a key that Zap refused: it told
        break;
    }
    failed_ = false;
  }
  return true;
}

}  // namespace dtrain::net
