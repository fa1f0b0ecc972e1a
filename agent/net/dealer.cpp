#include "agent/net/dealer.h"

#include <sodium.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "agent/net/peer_socket.h"

namespace dtrain::net {
namespace {

constexpr int kDealerWatched = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

std::string_view view_of_key(const CurveKey& key) { return {reinterpret_cast<const char*>(key.data()), key.size()}; }

}  // namespace

Dealer::Dealer(const DealerWorld& world, std::uint64_t serial, const DealerTarget& target, const MemberId& member)
    : world_(world), serial_(serial), target_(target), member_(member) {}

Result<std::unique_ptr<Dealer>> Dealer::open(const DealerWorld& world, std::uint64_t serial, const DealerTarget& target,
                                             const MemberId& member, std::size_t pair) {
  std::unique_ptr<Dealer> dealer(new Dealer(world, serial, target, member));
  dealer->pair_ = pair;
  if (auto connected = dealer->connect(); !connected) return fail(connected.error());
  return dealer;
}

Dealer::~Dealer() { disconnect(); }

Status Dealer::connect() {
  auto socket = ZmqSocket::open(world_.context, ZMQ_DEALER);
  if (!socket) return fail(socket.error());
  const int reconnect = kReconnectMinMs + static_cast<int>(::randombytes_uniform(kReconnectMinMs));
  bool set = set_up(*socket, target_.lane, target_.to.ip) && socket->set(ZMQ_IMMEDIATE, 1) &&
             socket->set(ZMQ_CONNECT_TIMEOUT, kConnectTimeoutMs) && socket->set(ZMQ_RECONNECT_IVL, reconnect) &&
             socket->set(ZMQ_RECONNECT_IVL_MAX, kReconnectMaxMs);
  if (!world_.keys.plain()) {
    const KeyPair& shown = target_.join ? world_.keys.cluster(pair_) : world_.keys.own(pair_);
    set = set && socket->set(ZMQ_CURVE_SERVERKEY, view_of_key(world_.keys.cluster(pair_).public_key)) &&
          socket->set(ZMQ_CURVE_PUBLICKEY, view_of_key(shown.public_key)) &&
          socket->set(ZMQ_CURVE_SECRETKEY, view_of_key(shown.secret_key));
  }
  if (!set) return fail(ErrorCode::internal, "could not set up socket: " + zmq_cause());
  if (target_.join) {
    // A new name each time, because libzmq frees that of a closed one later.
    const std::string name = "events-" + std::to_string(serial_) + "-" + std::to_string(++openings_);
    auto events = SocketEvents::open(world_.context, *socket, name, kDealerWatched);
    if (!events) return fail(events.error());
    events_.emplace(std::move(*events));
    if (auto added = world_.poller.add(events_->fd(), EPOLLIN, {PollTag::Kind::dealer_monitor, serial_}); !added) {
      events_->stop(*socket);
      events_.reset();
      return fail(added.error());
    }
  }
  socket_ = std::move(*socket);
  // No source address: libzmq 4.3.4 looks it up among the interfaces at every reconnect, and aborts the program when
  // no descriptor is free at that moment.
  if (!socket_.connect("tcp://" + address_text(target_.to, target_.lane))) {
    const Error error{ErrorCode::invalid, "could not connect to " + address_text(target_.to, target_.lane) + ": " + zmq_cause(), ""};
    disconnect();
    return fail(error);
  }
  if (auto added = world_.poller.add(socket_.fd(), EPOLLIN, {PollTag::Kind::dealer, serial_}); !added) {
    disconnect();
    return fail(added.error());
  }
  opened_at_.reset();
  return {};
}

void Dealer::disconnect() {
  if (!socket_) return;
  if (events_) {
    world_.poller.remove(events_->fd());
    events_->stop(socket_);
    events_.reset();
  }
  world_.poller.remove(socket_.fd());
  socket_.close();
}

Status Dealer::reopen(std::size_t pair) {
  disconnect();
  up_ = false;
  pair_ = pair;
  return connect();
}

ZmqSocket::Sent Dealer::hand_over(const Waiting& message) {
  const auto sent = socket_.send(message.header, true);
  // Once the first frame is accepted there is room for the second.
  return sent == ZmqSocket::Sent::done ? socket_.send(message.body, false) : sent;
}

bool Dealer::send(std::string header, std::string body) {
  used_ = true;
  Waiting message{std::move(header), std::move(body), std::nullopt};
  if (up_ && waiting_.empty()) {
    if (hand_over(message) == ZmqSocket::Sent::done) return true;
    // The connection is gone, or its queue of kPeerHighWater is full: the next examination shows which.
    if ((socket_.events() & ZMQ_POLLOUT) != 0) return false;
  }
  if (waiting_.size() >= kWaitingMessages) return false;
  waiting_.push_back(std::move(message));
  return true;
}

bool Dealer::wants_examination() const { return !up_ || !waiting_.empty() || !has_socket() || socket_.events() != ZMQ_POLLOUT; }

void Dealer::flush() {
  while (!waiting_.empty() && hand_over(waiting_.front()) == ZmqSocket::Sent::done) waiting_.pop_front();
}

bool Dealer::examine(Instant now, std::vector<gossip::Input>& out) {
  if (!socket_) return false;
  watch(now);
  const bool gossip_lane = target_.lane == wire::Lane::gossip;
  wire::LinkAuth auth;
  auth.curve = !world_.keys.plain();
  auth.cluster_key = auth.curve && target_.join;
  auth.node = member_;
  bool more = true;
  for (std::size_t i = 0; i < kDealerPerTurn && more; ++i)
    more = world_.gate.pass(now, socket_, {Gate::Side::Kind::outbound, auth, 0}, out);
  const bool takes = (socket_.events() & ZMQ_POLLOUT) != 0;
  if (takes != up_) {
    up_ = takes;
    if (gossip_lane && !target_.join && !target_.anew) {
      if (up_) out.push_back(gossip::LinkUp{target_.to});
      else out.push_back(gossip::LinkLost{target_.to});
    }
    if (!up_) opened_at_ = now;  // it reconnects by itself
  }
  if (up_) flush();
  return more || (socket_.events() & ZMQ_POLLIN) != 0;
}

void Dealer::watch(Instant now) {
  if (!events_) return;
  while (const auto event = events_->next())
    world_.gate.quiet().warn(now, "net.handshake-failed", "handshake", address_text(target_.to, target_.lane),
                             "its key file differs from ours, or one of the two runs without, or it is no agent: "
                             "compare `sha256sum` of both key files");
}

Instant Dealer::service(Instant now) {
  if (used_) last_used_ = now;
  used_ = false;
  if (!opened_at_) opened_at_ = now;
  for (Waiting& message : waiting_)
    if (!message.since) message.since = now;
  while (!waiting_.empty() && *waiting_.front().since + kWaitingTime <= now) waiting_.pop_front();
  return waiting_.empty() ? kNever : *waiting_.front().since + kWaitingTime;
}

}  // namespace dtrain::net
