#include "agent/net/client_door.h"

#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/net/peer_socket.h"
#include "common/wire/control.h"
#include "common/wire/key_file.h"

namespace dtrain::net {
namespace {

constexpr int kIoThreadsOfDoor = 1;
constexpr int kLastWordsMs = 200;   // for unsent messages when the agent ends
constexpr int kSocketsOfDoor = 16;  // the router, its monitor's pair, ZAP, and ZeroMQ's own end of it
constexpr std::size_t kQuestionsPerTurn = 128;
constexpr std::size_t kNameBytes = 5;  // of the names that ROUTER assigns: a zero and a number
constexpr std::string_view kHandshakeNext =
    "it knows none of this cluster's keys for clients, or is no dtrainctl: have its key file made anew (dtrainctl keygen --client)";

bool set_up_door(ZmqSocket& socket, const std::string& ip) {
  return socket.set(ZMQ_LINGER, kLastWordsMs) && socket.set(ZMQ_SNDHWM, kDoorHighWater) && socket.set(ZMQ_RCVHWM, kDoorHighWater) &&
         socket.set(ZMQ_MAXMSGSIZE, kBridgeFrameBytes) && socket.set(ZMQ_HANDSHAKE_IVL, kHandshakeMs) &&
         socket.set(ZMQ_TCP_MAXRT, kTcpMaxRetransmitMs) && socket.set(ZMQ_BACKLOG, kBacklog) &&
         socket.set(ZMQ_ZAP_DOMAIN, std::string_view("dtrain-clients")) && (ip.find(':') == std::string::npos || socket.set(ZMQ_IPV6, 1));
}

// Reads and drops the other frames of a message. Returns false if there were none.
bool read_rest(ZmqSocket& socket, bool more) {
  if (!more) return false;
  while (more) {
    Frame frame;
    more = socket.receive(frame) && frame.more();
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<ClientDoor>> ClientDoor::open(const wire::Endpoint& at, const ClusterKeys& keys, World world, Log& log) {
  if (::sodium_init() < 0) return fail(ErrorCode::internal, "could not set up cryptography");
  auto context = ZmqContext::open(kIoThreadsOfDoor, kSocketsOfDoor);
  if (!context) return fail(context.error());
  auto poller = Poller::open();
  if (!poller) return fail(poller.error());
  std::unique_ptr<ClientDoor> door(new ClientDoor(std::move(*context), std::move(*poller), std::move(world), log));
  auto zap = ZapSocket::open(door->context_);
  if (!zap) return fail(zap.error());
  door->zap_ = std::make_unique<ZapSocket>(std::move(*zap));
  if (auto added = door->poller_.add(door->zap_->fd(), EPOLLIN, {PollTag::Kind::zap, 0}); !added) return fail(added.error());
  BoundRouter::Options options;
  options.at = at;
  options.name = "clients";
  options.set_up = [ip = at.ip](ZmqSocket& socket) { return set_up_door(socket, ip); };
  options.handshake_next = kHandshakeNext;
  door->serves_ = door_key(keys.pairs.front());
  auto router = BoundRouter::open(door->context_, door->poller_, std::move(options), &door->serves_);
  if (!router) return fail(router.error());
  door->router_ = std::move(*router);
  // A descriptor signals only after its socket was looked at once.
  door->unfinished_ = {{PollTag::Kind::zap, 0}, {PollTag::Kind::router, 0}, {PollTag::Kind::router_monitor, 0}};
  return door;
}

ClientDoor::ClientDoor(ZmqContext context, Poller poller, World world, Log& log)
    : context_(std::move(context)), poller_(std::move(poller)), world_(std::move(world)), quiet_(log) {}

ClientDoor::~ClientDoor() {
  while (!visits_.empty()) end(visits_.begin(), true);
  ::sodium_memzero(&serves_.secret_key, sizeof serves_.secret_key);
}

Instant ClientDoor::deadline() const {
  if (!unfinished_.empty()) return Instant{};
  Instant first = router_->deadline();
  for (const auto& [serial, visit] : visits_) first = std::min(first, visit.bridge->deadline());
  return first;
}

void ClientDoor::dispatch(Instant now) {
  std::set<PollTag> todo = std::exchange(unfinished_, {});
  for (const PollTag& tag : poller_.ready()) todo.insert(tag);
  for (const auto& [serial, visit] : visits_)
    if (visit.bridge->deadline() <= now) todo.insert({PollTag::Kind::pipe, serial});
  for (const PollTag& tag : todo) {
    bool more = false;
    if (tag.kind == PollTag::Kind::zap) more = judge_some(now);
    if (tag.kind == PollTag::Kind::router) more = receive_some(now);
    if (tag.kind == PollTag::Kind::router_monitor) more = router_->watch(now, quiet_);
    if (tag.kind == PollTag::Kind::pipe) pump(now, tag.serial);
    if (more) unfinished_.insert(tag);
  }
  router_->service(now, &serves_);
  if (router_->readable()) unfinished_.insert({PollTag::Kind::router, 0});
}

// ---------------------------------------------------------------- who may come in

bool ClientDoor::judge_some(Instant now) {
  for (std::size_t i = 0; i < kQuestionsPerTurn; ++i) {
    ZapQuestion question;
    if (!zap_->read(question)) return false;
    judge(now, question);
  }
  return true;
}

void ClientDoor::judge(Instant now, const ZapQuestion& question) {
  const std::string key = wire::key_text(question.key);
  const char* reason = nullptr;
  std::string next;
  std::string_view status = kZapTell;
  if (!question.well_formed || question.mechanism != "CURVE") {
    reason = "malformed";
    next = "see which program runs there";
  } else if (!users_.contains(question.key)) {
    reason = "unknown-client-key";
    next = "to let it in put " + key + ": USER under access.keys and reload";
  } else if (router_->connections_from(question.address) > kDoorPerAddress) {
    reason = "too-many-connections";
    next = "see what runs there";
    status = kZapClose;
  }
  if (reason == nullptr) return zap_->answer(question, kZapAccept, "", key);
  ++refused_;
  zap_->answer(question, status, reason, "");
  quiet_.warn(now, "net.refused", reason, question.address, next);
}

Result<node::Caller> ClientDoor::may_enter(const CurveKey& key) const {
  const auto known = users_.find(key);
  if (known == users_.end())
    return fail(ErrorCode::refused, "could not serve this connection: this agent does not know its key any more",
                "ask an administrator for a line under access.keys");
  const auto of_key = std::ranges::count_if(visits_, [&](const auto& entry) { return entry.second.key == key; });
  if (visits_.size() >= kDoorVisits || static_cast<std::size_t>(of_key) >= kVisitsPerKey)
    return fail(ErrorCode::limit,
                "could not serve this connection: " + std::to_string(visits_.size()) + " from other machines are open, " +
                    std::to_string(of_key) + " of them under this key",
                "close some, or try again later");
  return world_.welcome(known->second);
}

void ClientDoor::welcome(Instant now, const std::string& name, const CurveKey& key, std::uint32_t version) {
  // The agent's version is sent in any case, so that a client with another version can tell its user.
  if (send(name, wire::encode_bridge({wire::BridgeWord::hello, "", wire::kBridgeVersion})) != ZmqSocket::Sent::done) return;
  if (version != wire::kBridgeVersion) return void(send(name, Bridge::farewell()));
  const auto caller = may_enter(key);
  if (!caller) return turn_away(name, caller.error());
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
    return turn_away(name, {ErrorCode::limit, std::string("could not serve this connection: ") + ::strerror(errno), "try again later"});
  auto bridge = std::make_unique<Bridge>(pair[0], now);
  const std::uint64_t serial = next_serial_++;
  if (auto added = poller_.add(pair[0], kBridgeEdges, {PollTag::Kind::pipe, serial}); !added) {
    ::close(pair[1]);
    return turn_away(name, added.error());
  }
  visits_.emplace(serial, Visit{name, key, users_.at(key), std::move(bridge)});
  named_.emplace(name, serial);
  world_.adopt(pair[1], *caller);
}

// As on the control socket: dtrainctl shows the error as the answer to its request.
void ClientDoor::turn_away(const std::string& name, const Error& error) {
  const std::string reply = wire::frame(wire::make_message(wire::MessageType::error, 0, wire::error_reply(error)));
  if (reply.size() <= wire::kBridgeChunkBytes) send(name, wire::encode_bridge({wire::BridgeWord::data, reply, 0}));
  send(name, Bridge::farewell());
}

void ClientDoor::allow(std::map<CurveKey, std::string> users) {
  users_ = std::move(users);
  for (auto visit = visits_.begin(); visit != visits_.end();) {
    const auto each = visit++;
    const auto known = users_.find(each->second.key);
    bool stays = known != users_.end() && known->second == each->second.user;
    if (stays) {
      const auto caller = world_.welcome(known->second);
      stays = caller || caller.error().code != ErrorCode::refused;
    }
    if (!stays) end(each, true);
  }
  unfinished_.insert({PollTag::Kind::router, 0});  // the socket was used
}

Status ClientDoor::rekey(const ClusterKeys& keys) {
  const KeyPair next = door_key(keys.pairs.front());
  if (next.public_key == serves_.public_key) return {};
  serves_ = next;
  while (!visits_.empty()) end(visits_.begin(), true);
  unfinished_.insert({PollTag::Kind::router, 0});  // the socket was used
  return router_->serve(&serves_);
}

// ---------------------------------------------------------------- visits

ZmqSocket::Sent ClientDoor::send(const std::string& name, std::string_view message) {
  const auto sent = router_->socket().send(name, true);
  // A ROUTER that accepted the name accepts the rest too.
  return sent == ZmqSocket::Sent::done ? router_->socket().send(message, false) : sent;
}

bool ClientDoor::receive_some(Instant now) {
  for (std::size_t i = 0; i < kDoorMessagesPerTurn; ++i) {
    Frame name, payload;
    if (!router_->socket().receive(name)) return false;
    if (!name.more() || !router_->socket().receive(payload)) continue;
    const std::string from(name.bytes());
    if (!read_rest(router_->socket(), payload.more()) && from.size() == kNameBytes && from[0] == 0) {
      receive(now, from, payload);
    } else if (const auto found = named_.find(from); found != named_.end()) {
      end(visits_.find(found->second), true);
    }
  }
  return true;
}

void ClientDoor::receive(Instant now, const std::string& name, const Frame& payload) {
  const auto message = wire::decode_bridge(payload.bytes());
  const auto found = named_.find(name);
  if (found == named_.end()) {
    // libzmq 4.3.4 may lose properties of the routing id's frame; those of the payload are complete.
    const auto key = wire::parse_key(payload.property("User-Id"));
    if (message && key && message->word == wire::BridgeWord::hello) return welcome(now, name, *key, message->count);
    if (!message || message->word != wire::BridgeWord::end) send(name, Bridge::farewell());
    return;
  }
  const auto visit = visits_.find(found->second);
  // ZeroMQ lets a client choose its name: another client must not take that of one that is gone but whose end was not reported yet.
  if (wire::parse_key(payload.property("User-Id")) != visit->second.key) {
    quiet_.warn(now, "net.dropped", "not-the-key-holder", std::string(payload.property("Peer-Address")),
                "another key spoke on this connection: see who that is, and whether its key should be in access.keys");
    return end(visit, true);
  }
  if (!message || !visit->second.bridge->receive(now, *message)) {
    quiet_.warn(now, "net.dropped", "malformed", std::string(payload.property("Peer-Address")),
                "that dtrainctl is of another version, or it is none: see which program runs there");
    return end(visit, true);
  }
  pump(now, visit->first);
}

void ClientDoor::pump(Instant now, std::uint64_t serial) {
  const auto visit = visits_.find(serial);
  if (visit == visits_.end()) return;
  switch (visit->second.bridge->pump(now, [&](std::string_view message) { return send(visit->second.name, message); })) {
    case Bridge::State::open: return;
    case Bridge::State::silent: return end(visit, true);
    case Bridge::State::ended:
    case Bridge::State::closed:
    case Bridge::State::lost: return end(visit, false);
  }
}

void ClientDoor::end(Visits::iterator visit, bool say_so) {
  if (say_so) send(visit->second.name, Bridge::farewell());
  poller_.remove(visit->second.bridge->local());
  named_.erase(visit->second.name);
  visits_.erase(visit);
}

}  // namespace dtrain::net
