#include "agent/net/bound_router.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/net/ip_address.h"

namespace dtrain::net {
namespace {

constexpr Duration kShutFor = 1s;
constexpr int kWatched = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_ACCEPT_FAILED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                         ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;

}  // namespace

Result<std::unique_ptr<BoundRouter>> BoundRouter::open(const ZmqContext& context, Poller& poller, Options options, const KeyPair* serves) {
  auto listener = ListenSocket::open(options.at);
  if (!listener) return fail(listener.error());
  auto socket = ZmqSocket::open(context, ZMQ_ROUTER);
  if (!socket) return fail(socket.error());
  if (!options.set_up(*socket) || !socket->set(ZMQ_ROUTER_MANDATORY, 1))
    return fail(ErrorCode::internal, "could not set up socket: " + zmq_cause());
  auto events = SocketEvents::open(context, *socket, "events-" + options.name, kWatched);
  if (!events) return fail(events.error());
  std::unique_ptr<BoundRouter> router(new BoundRouter(poller, std::move(*listener), std::move(*socket), std::move(*events),
                                                      "tcp://" + options.at.text(), options.handshake_next));
  if (auto added = poller.add(router->socket_.fd(), EPOLLIN, {PollTag::Kind::router, options.serial}); !added) return fail(added.error());
  if (auto added = poller.add(router->events_.fd(), EPOLLIN, {PollTag::Kind::router_monitor, options.serial}); !added)
    return fail(added.error());
  if (auto bound = router->bind(serves); !bound) return fail(bound.error());
  return router;
}

BoundRouter::BoundRouter(Poller& poller, ListenSocket listener, ZmqSocket socket, SocketEvents events, std::string endpoint,
                         std::string_view handshake_next)
    : poller_(poller),
      listener_(std::move(listener)),
      socket_(std::move(socket)),
      events_(std::move(events)),
      endpoint_(std::move(endpoint)),
      handshake_next_(handshake_next) {}

BoundRouter::~BoundRouter() {
  poller_.remove(events_.fd());
  poller_.remove(socket_.fd());
  events_.stop(socket_);
}

Status BoundRouter::bind(const KeyPair* serves) {
  const int fd = listener_.duplicate();
  if (fd < 0)
    return fail(ErrorCode::limit, "could not listen on " + endpoint_ + ": " + ::strerror(errno), "raise LimitNOFILE of the agent");
  bool set = socket_.set(ZMQ_USE_FD, fd);
  if (set && serves != nullptr) {
    set = socket_.set(ZMQ_CURVE_SERVER, 1) &&
          socket_.set(ZMQ_CURVE_SECRETKEY, {reinterpret_cast<const char*>(serves->secret_key.data()), serves->secret_key.size()});
  }
  if (set && socket_.bind(endpoint_)) {
    bound_ = true;
    return {};
  }
  const std::string cause = zmq_cause();
  ::close(fd);
  return fail(ErrorCode::io, "could not listen on " + endpoint_ + ": " + cause);
}

// libzmq does not report the connections that end with it.
void BoundRouter::unbind() {
  socket_.unbind(endpoint_);
  bound_ = false;
  inbound_.clear();
  from_.clear();
}

Status BoundRouter::serve(const KeyPair* serves) {
  // The listening socket itself stays open: connections in between wait in its queue.
  if (bound_) unbind();
  auto bound = bind(serves);
  shut_until_ = bound ? kNever : Instant{};  // service() tries again
  return bound;
}

// No connection can be turned away: libzmq would try to accept for ever, at the cost of a CPU. Present connections
// are dropped, and new ones wait in the listening socket's queue.
void BoundRouter::shut(Instant now) {
  if (!bound_) return;
  unbind();
  shut_until_ = now + kShutFor;
}

void BoundRouter::service(Instant now, const KeyPair* serves) {
  if (shut_until_ > now) return;
  shut_until_ = bind(serves) ? kNever : now + kShutFor;
}

void BoundRouter::note_inbound(int fd) {
  forget_inbound(fd);  // its end was not reported
  if (inbound_.size() >= kInboundNamed) return;
  const std::string& ip = inbound_[fd] = peer_ip(fd);
  ++from_[ip];
  inbound_peak_ = std::max(inbound_peak_, inbound_.size());
}

// Returns its address; "" when it is not known.
std::string BoundRouter::forget_inbound(int fd) {
  const auto found = inbound_.find(fd);
  if (found == inbound_.end()) return "";
  std::string ip = std::move(found->second);
  inbound_.erase(found);
  if (const auto counted = from_.find(ip); --counted->second == 0) from_.erase(counted);
  return ip;
}

std::size_t BoundRouter::connections_from(const std::string& ip) const {
  const auto found = from_.find(ip);
  return found == from_.end() ? 0 : found->second;
}

// A flood of strangers uses some 14 KiB for each connection while they last, which the allocator would keep.
void BoundRouter::give_memory_back() {
  inbound_peak_ = std::max(inbound_peak_, inbound_.size());
  if (inbound_peak_ < kInboundFlood || inbound_.size() > inbound_peak_ / 4) return;
  inbound_peak_ = inbound_.size();
  ::malloc_trim(0);
}

bool BoundRouter::watch(Instant now, QuietLog& log) {
  int exhausted = 0;  // errno of an accept() that found no descriptor; there may be thousands of them
  const bool more = watch_events(now, log, exhausted);
  if (exhausted == 0) return more;
  const std::optional<int> turned = listener_.turn_away();
  turned_away_ += static_cast<std::uint64_t>(turned.value_or(0));
  log.warn(now, "net.descriptors-exhausted", ::strerror(exhausted), endpoint_,
           "connections are turned away until some are free: raise LimitNOFILE of the agent, or see who connects");
  if (!turned) shut(now);
  return more;
}

bool BoundRouter::watch_events(Instant now, QuietLog& log, int& exhausted) {
  for (std::size_t i = 0; i < kSocketEventsPerTurn; ++i) {
    const auto event = events_.next();
    if (!event) return false;
    switch (event->what) {
      case ZMQ_EVENT_ACCEPTED: note_inbound(event->value); break;
      case ZMQ_EVENT_ACCEPT_FAILED:
        if (event->value == EMFILE || event->value == ENFILE || event->value == ENOMEM) exhausted = event->value;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL: failed_ = true; continue;
      case ZMQ_EVENT_DISCONNECTED: {
        const std::string from = forget_inbound(event->value);
        if (failed_) {
          ++handshakes_failed_;
          log.warn(now, "net.refused", "handshake", from.empty() ? "unknown" : from, handshake_next_);
        }
        give_memory_back();
        break;
      }
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        // Closed or silent: somebody checked whether the agent is there, or hung up first. Nothing is logged.
        ++handshakes_incomplete_;
        break;
      default:  // a key that Zap refused, which Zap logged
        break;
    }
    failed_ = false;
  }
  return true;
}

}  // namespace dtrain::net
