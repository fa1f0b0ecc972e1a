#include "agent/net/gate.h"

#include <utility>

#include "agent/net/zap.h"

namespace dtrain::net {
namespace {

template <class Body>
constexpr std::uint16_t type_of() {
  return static_cast<std::uint16_t>(wire::GossipBody(Body{}).index() + 1);
}

const char* next_step(wire::Drop why) {
  switch (why) {
    case wire::Drop::other_cluster: return "an agent of another cluster has our address among its seeds or members: see its --join";
    case wire::Drop::not_the_key_holder: return "somebody speaks in another node's name: is one data directory in use on two hosts?";
    case wire::Drop::self: return "somebody speaks in this node's name: is its data directory in use on another host?";
    case wire::Drop::unknown_format: return "that agent runs a version that this one does not understand: upgrade this one";
    default: return "that agent runs another version, or it is none: see which program runs there";
  }
}

// The two frames after a ROUTER's routing id; further frames are dropped.
struct Message {
  Frame header, body;
  bool complete = false;
};
bool read(ZmqSocket& socket, Message& message) {
  if (!socket.receive(message.header)) return false;
  bool more = message.header.more() && socket.receive(message.body);
  message.complete = more && !message.body.more();
  more = more && message.body.more();
  while (more) {
    Frame extra;
    more = socket.receive(extra) && extra.more();
  }
  return true;
}

wire::LinkAuth authenticated(std::string_view user) {
  wire::LinkAuth auth;
  if (user == kUserPlain) return auth;
  auth.curve = true;
  if (const auto node = MemberId::parse(user)) auth.node = *node;
  else auth.cluster_key = true;  // a sender without identity may do the least
  return auth;
}

}  // namespace

void Gate::drop(Instant now, wire::Drop why, const std::string& from, std::vector<gossip::Input>& out) {
  ++dropped_;
  // Founders that began a moment earlier, and a cluster that this node asks for admission, are no offenders.
  const bool expected = why == wire::Drop::other_cluster && cluster_.none();
  if (!expected) quiet_.warn(now, "net.dropped", wire::to_string(why), from, next_step(why));
  out.push_back(gossip::Dropped{why, from});
}

bool Gate::pass(Instant now, ZmqSocket& socket, const Side& side, std::vector<gossip::Input>& out) {
  Message message;
  if (!read(socket, message)) return false;
  // libzmq 4.3.4 may lose properties of the routing id's frame; those of the payload are complete.
  const Frame& payload = message.complete ? message.body : message.header;
  const std::string from(payload.property("Peer-Address"));
  const bool inbound = side.kind == Side::Kind::inbound;
  const wire::LinkAuth auth = inbound ? authenticated(payload.property("User-Id")) : side.auth;
  if (!message.complete) return drop(now, wire::Drop::malformed, from, out), true;
  const auto checked = wire::check_header(message.header.bytes(), message.body.bytes().size(), self_, cluster_, auth);
  if (!checked.ok) return drop(now, checked.drop, from, out), true;
  const std::uint16_t welcome = inbound ? type_of<wire::Join>() : type_of<wire::JoinReply>();
  const bool forming = checked.header.type == wire::kFormationType;
  if (auth.cluster_key && checked.header.type != welcome && !(inbound && forming)) return drop(now, wire::Drop::join_link, from, out), true;
  if (forming) {
    auto report = wire::decode_formation(message.body.bytes());
    if (!report) return drop(now, wire::Drop::bad_body, from, out), true;
    ++passed_;
    others_.push_back(node::FormationReceived{checked.header, *std::move(report)});
    return true;
  }
  if (wire::is_log_type(checked.header.type)) {
    auto about_log = wire::decode_log(checked.header.type, checked.header.sender, message.body.bytes());
    if (!about_log) return drop(now, wire::Drop::bad_body, from, out), true;
    ++passed_;
    others_.push_back(node::LogReceived{checked.header, *std::move(about_log)});
    return true;
  }
  if (wire::is_relay_type(checked.header.type)) {
    auto relayed = wire::decode_relay(checked.header.type, message.body.bytes());
    if (!relayed) return drop(now, wire::Drop::bad_body, from, out), true;
    ++passed_;
    others_.push_back(node::RelayReceived{checked.header, *std::move(relayed)});
    return true;
  }
  auto body = wire::decode_gossip(checked.header.type, message.body.bytes());
  if (!body) return drop(now, wire::Drop::bad_body, from, out), true;
  ++passed_;
  out.push_back(gossip::Received{checked.header, std::move(*body), side.reply, from});
  return true;
}

}  // namespace dtrain::net
