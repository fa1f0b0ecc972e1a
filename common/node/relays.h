// Requests of this node's clients at other hosts, and requests that other agents make here for their clients.
//
// This class decides with whom a stream is opened, under which number, who may open one here, and when one is over.
// The agent moves the bytes (common/relay). A stream is opened once: its number is remembered after its end, so that
// a message that arrives twice opens nothing anew.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "common/node/context.h"
#include "common/node/part.h"
#include "common/wire/control.h"

namespace dtrain::node {

inline constexpr std::size_t kRelaysOpened = 256;    // at a time, for this node's clients; a further one is refused
inline constexpr std::size_t kRelaysAccepted = 128;  // at a time, for all other agents; a further one is refused
inline constexpr std::size_t kRelaysOfOne = 64;      // of kRelaysAccepted, those of one agent
// members whose streams are remembered; a further member's streams are refused
inline constexpr std::size_t kRelayPeers = 4096;
// ended streams of one member that are remembered one by one; older ones only as a range
inline constexpr std::size_t kEndedRelays = 1024;

class Relays final : public Part {
 public:
  explicit Relays(Context& context) : Part(Runs::always), c_(context) {}
  void start(std::uint64_t life) { last_stream_ = life << 32; }

  // ---- for this node's clients
  struct Asked {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    Caller caller;
    wire::MessageType type{};
    std::string payload;  // encoded
  };
  // Returns the part, or why there is none; the error's message holds the cause alone, as in RelayEnded.
  Result<ConnectionId> open(const Asked& asked, const NodeId& host, bool whole);
  void close(ConnectionId part);
  // Passes a whole request on to one other host, which answers the client. `could_not` begins the error if that host cannot.
  void pass_on(const Asked& asked, const NodeId& host, const std::string& could_not);
  void relay_ended(const RelayEnded& e) override;
  void cancel(ConnectionId connection, std::uint64_t request);
  // Why no stream can be opened with that host, or why an open one counts as lost; nullopt: the host is in service.
  std::optional<Error> away(const NodeId& host) const;

  // ---- for other agents
  //
  // The connection that was accepted, and its caller; nullopt: the stream was refused, or the message opens none.
  struct Accepted {
    ConnectionId connection = 0;
    Caller caller;
  };
  std::optional<Accepted> received(const RelayReceived& e);

  // ---- both
  void closed(ConnectionId connection) override;
  void members_changed() override;

 private:
  struct Passed {  // one request that was passed on as a whole
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    NodeId host;
    std::string could_not;
  };
  struct Peer {
    std::set<std::uint64_t> open;
    std::set<std::uint64_t> over;
    std::uint64_t over_to = 0;  // streams up to this number that are not open are over, too
  };
  struct Stream {
    MemberId member;
    std::uint64_t number = 0;
  };
  std::optional<RelayPeer> peer_of(const MemberId& member) const;
  std::optional<Error> refusal(const MemberId& member, std::uint64_t stream);

  Context& c_;
  std::uint64_t last_stream_ = 0;
  std::set<ConnectionId> parts_;
  std::map<ConnectionId, Passed> passed_;  // subset of parts_
  std::map<ConnectionId, Stream> accepted_;
  std::map<MemberId, Peer> peers_;  // members that opened streams here
};

}  // namespace dtrain::node
