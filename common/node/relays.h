// Requests of clients at the hosts that have what they ask for, and those that other agents ask for their clients.
//
// Here: whom a stream is opened with, under which number, who may open one here, and when one is over. The bytes are the
// agent's (common/relay). A stream is opened once: its number is remembered beyond its end, so that a message that comes
// again begins nothing anew.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/node/context.h"
#include "common/wire/control.h"

namespace dtrain::node {

inline constexpr std::size_t kRelaysOpened = 256;    // at a time, of this node's clients: a further one is refused
inline constexpr std::size_t kRelaysAccepted = 128;  // at a time, from all other agents: likewise
inline constexpr std::size_t kRelaysOfOne = 64;      // of them from one agent
inline constexpr std::size_t kRelayPeers = 4096;     // members whose streams are remembered: of a further one none is accepted
inline constexpr std::size_t kEndedRelays = 1024;    // of one member; of older ones only that they are over

class Relays {
 public:
  explicit Relays(Context& context) : c_(context) {}
  void start(std::uint64_t life) { last_stream_ = life << 32; }

  // ---- for this node's clients
  struct Asked {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    Caller caller;
    wire::MessageType type{};
    std::string payload;  // encoded
  };
  // The part, or why there is none: the message is the cause alone, as in RelayEnded.
  Result<ConnectionId> open(const Asked& asked, const NodeId& host, bool whole);
  void close(ConnectionId part);
  // One request at one other host, which answers it. `could_not`: what is said where it cannot.
  void pass_on(const Asked& asked, const NodeId& host, const std::string& could_not);
  void ended(const RelayEnded& e);
  void cancel(ConnectionId connection, std::uint64_t request);
  // Why no stream can be opened with that host, or one that was is lost; nothing: it is in service.
  std::optional<Error> away(const NodeId& host) const;

  // ---- for other agents
  // A caller whose connection was accepted; nothing: refused, or nothing to accept.
  struct Accepted {
    ConnectionId connection = 0;
    Caller caller;
  };
  std::optional<Accepted> received(const RelayReceived& e);
  // Whose connection that is; nothing: none of these.
  std::optional<MemberId> opener(ConnectionId relayed) const;

  // ---- both
  void closed(ConnectionId connection);
  void members_changed();

 private:
  struct Passed {  // a whole request
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    NodeId host;
    std::string could_not;
  };
  struct Peer {
    std::set<std::uint64_t> open;
    std::set<std::uint64_t> over;
    std::uint64_t over_to = 0;  // up to this one those that are not open are over, too
  };
  struct Stream {
    MemberId member;
    std::uint64_t number = 0;
  };
  std::optional<RelayPeer> peer_of(const MemberId& member) const;
  std::optional<Error> refusal(const MemberId& member, std::uint64_t stream);

  Context& c_;
  std::uint64_t last_stream_ = 0;
  ConnectionId last_part_ = kFirstPart - 1, last_relayed_ = kFirstRelayed - 1;
  std::set<ConnectionId> parts_;
  std::map<ConnectionId, Passed> passed_;     // of parts_
  std::map<ConnectionId, Stream> accepted_;
  std::map<MemberId, Peer> peers_;            // that opened streams here
};

}  // namespace dtrain::node
