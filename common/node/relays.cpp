#include "common/node/relays.h"

#include "common/node/cluster_members.h"
#include "common/node/host_capacities.h"
#include "common/node/reply.h"

namespace dtrain::node {

std::optional<RelayPeer> Relays::peer_of(const MemberId& member) const {
  const auto known = c_.members->table().find(member);
  if (!known) return std::nullopt;
  return RelayPeer{known->identity->address, member, c_.members->header()};
}

std::optional<Error> Relays::away(const NodeId& host) const {
  if (host == c_.facts.id) return std::nullopt;
  const auto id = MemberId::parse(host);
  const auto member = id ? c_.members->table().find(*id) : std::nullopt;
  const std::string name = host_name(c_, host);
  if (!member) return Error{ErrorCode::unavailable, "host " + name + " is not known here", "dtrainctl nodes shows which hosts there are"};
  if (wire::in_service(member->state)) return std::nullopt;
  return Error{ErrorCode::unavailable, "host " + name + " is " + wire::to_string(member->state),
               "start its agent, or see why the host is away"};
}

// ---------------------------------------------------------------- for this node's clients

Result<ConnectionId> Relays::open(const Asked& asked, const NodeId& host, bool whole) {
  if (auto cause = away(host)) return fail(std::move(*cause));
  if (parts_.size() >= kRelaysOpened)
    return fail(ErrorCode::limit, std::to_string(kRelaysOpened) + " streams to other hosts are open on this agent already",
                "end some logs -f or exec");
  OpenRelay open;
  open.part = c_.connections.next();
  open.connection = asked.connection;
  open.own = c_.connections.sink_of(asked.connection) != nullptr;
  open.request = asked.request;
  open.whole = whole;
  if (host != c_.facts.id) {
    open.peer = peer_of(*MemberId::parse(host));
    open.open.stream = ++last_stream_;
    open.open.user = asked.caller.user.substr(0, wire::kRelayUserBytes);
    open.open.uid = asked.caller.uid;
    open.open.applied = c_.ledger.state().applied;
    open.open.inside = asked.caller.inside.value_or(AssignmentId{});
    wire::Message query;
    query.type = asked.type;
    query.request = 1;
    query.payload = asked.payload;
    open.query = wire::encode(query);
  }
  const ConnectionId part = open.part;
  parts_.insert(part);
  c_.emit(std::move(open));
  return part;
}

void Relays::close(ConnectionId part) {
  passed_.erase(part);
  if (parts_.erase(part) != 0) c_.emit(CloseRelay{part});
}

void Relays::pass_on(const Asked& asked, const NodeId& host, const std::string& could_not) {
  const auto part = open(asked, host, true);
  if (!part)
    return reply_error(c_, asked.connection, asked.request,
                       {part.error().code, could_not + ": " + part.error().message, part.error().next});
  passed_[*part] = {asked.connection, asked.request, host, could_not};
}

void Relays::relay_ended(const RelayEnded& e) {
  parts_.erase(e.part);
  const auto found = passed_.find(e.part);
  if (found == passed_.end()) return;
  const Passed p = std::move(found->second);
  passed_.erase(found);
  if (e.how == RelayEnded::How::lost)
    reply_error(c_, p.connection, p.request,
                {e.error.code, p.could_not + ": host " + host_name(c_, p.host) + " " + e.error.message, e.error.next});
}

void Relays::cancel(ConnectionId connection, std::uint64_t request) {
  for (auto it = passed_.begin(); it != passed_.end();) {
    const auto [part, passed] = *it++;
    if (passed.connection == connection && passed.request == request) close(part);
  }
}

// ---------------------------------------------------------------- for other agents

std::optional<Error> Relays::refusal(const MemberId& member, std::uint64_t stream) {
  if (!peers_.contains(member) && peers_.size() >= kRelayPeers)
    return Error{ErrorCode::limit, "remembers the streams of " + std::to_string(kRelayPeers) + " agents already",
                 "restart its agent; its tasks go on"};
  const Peer& peer = peers_[member];
  if (stream <= peer.over_to || peer.over.contains(stream))
    return Error{ErrorCode::unavailable, "says that this stream is over", "try again"};
  if (accepted_.size() >= kRelaysAccepted || peer.open.size() >= kRelaysOfOne)
    return Error{ErrorCode::limit,
                 "serves " + std::to_string(accepted_.size()) + " streams of other hosts already, " + std::to_string(peer.open.size()) +
                     " of this one; the most are " + std::to_string(kRelaysAccepted) + " and " + std::to_string(kRelaysOfOne),
                 "end some logs -f or exec, or use dtrainctl on that host"};
  return std::nullopt;
}

std::optional<Relays::Accepted> Relays::received(const RelayReceived& e) {
  const MemberId member = e.header.sender;
  auto peer = peer_of(member);
  if (!peer) return std::nullopt;
  const auto close = [&](std::uint64_t stream, bool opener, const Error& error) {
    c_.emit(SendRelay{std::move(*peer), wire::RelayClose{stream, opener, error.code, error.message, error.next}});
  };
  if (const auto* data = std::get_if<wire::RelayData>(&e.message)) {
    // A stream of an earlier life, or one that ended here without the other end knowing.
    close(data->stream, !data->opener,
          {ErrorCode::unavailable, "does not know this stream any more: its agent was restarted", "try again"});
    return std::nullopt;
  }
  const auto* open = std::get_if<wire::RelayOpen>(&e.message);
  if (open == nullptr) return std::nullopt;
  // The opening was sent again before the agent had been told of the first.
  if (const auto known = peers_.find(member); known != peers_.end() && known->second.open.contains(open->stream)) return std::nullopt;
  if (const auto no = refusal(member, open->stream)) {
    close(open->stream, false, *no);
    return std::nullopt;
  }
  const ConnectionId connection = c_.connections.next();
  accepted_[connection] = {member, open->stream};
  peers_[member].open.insert(open->stream);
  c_.emit(AcceptRelay{connection, std::move(*peer), open->stream, open->allowed});
  Caller caller{open->user, open->uid, open->applied, host_name(c_, member.text()), member};
  if (open->inside.job != 0) caller.inside = open->inside;
  return Accepted{connection, std::move(caller)};
}

// ---------------------------------------------------------------- both

void Relays::closed(ConnectionId connection) {
  for (auto it = passed_.begin(); it != passed_.end();) {
    const auto [part, passed] = *it++;
    if (passed.connection == connection) close(part);
  }
  const auto found = accepted_.find(connection);
  if (found == accepted_.end()) return;
  Peer& peer = peers_[found->second.member];
  peer.open.erase(found->second.number);
  peer.over.insert(found->second.number);
  accepted_.erase(found);
  for (; peer.over.size() > kEndedRelays; peer.over.erase(peer.over.begin())) peer.over_to = *peer.over.begin();
}

void Relays::members_changed() {
  for (auto it = passed_.begin(); it != passed_.end();) {
    const auto [part, p] = *it++;
    const auto cause = away(p.host);
    if (!cause) continue;
    close(part);
    reply_error(c_, p.connection, p.request, {cause->code, p.could_not + ": " + cause->message, cause->next});
  }
  for (const auto& [connection, stream] : accepted_)
    if (away(stream.member.text())) c_.emit(CloseConnection{connection});  // -> ConnectionClosed
}

}  // namespace dtrain::node
