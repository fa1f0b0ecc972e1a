// Links to other agents over ZeroMQ: two bound ROUTERs (gossip, and bulk one port above on its own I/O
// thread, so that bulk never delays a pong), one DEALER per peer and lane that we talk to. CURVE whenever a
// key is there; ZAP always.
//
// Touches the world and decides nothing: bytes are checked and decoded by common/wire, what follows is
// Membership's. All sockets belong to the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/net/cluster_keys.h"
#include "common/base/log.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/gossip/membership.h"
#include "common/node/effect.h"

namespace dtrain::net {

inline constexpr std::size_t kIdleDealers = 64;  // beyond KeepLinks: the least recently used is closed
inline constexpr int kPeerHighWater = 64;  // messages queued to or from one peer; further ones are dropped
inline constexpr std::size_t kReceivedPerTurn = 256;  // messages read from each ROUTER in one turn
inline constexpr std::size_t kGoneChecks = 64;        // raw connects under way; further ones wait

struct PeerLinksOptions {
  wire::Endpoint listen;  // gossip; bulk is port + 1
  MemberId self;
  std::optional<ClusterKeys> keys;  // unset: plain, loopback peers only
};

// Since the start.
struct LinkCounters {
  std::uint64_t received = 0, dropped = 0, unsent = 0;
  std::uint64_t keys_refused = 0;       // by ZAP
  std::uint64_t handshakes_failed = 0;  // inbound, before a key was seen
  std::uint64_t handshakes_incomplete =
      0;  // inbound, closed or silent before their end: also who only looks whether we are there
  std::uint64_t turned_away = 0;  // for want of descriptors
  std::uint64_t links = 0;        // outbound, open now
};

class PeerLinks {
 public:
  using Sink = std::function<void(node::Event)>;  // Gossiped, LogReceived, FormationReceived and RelayReceived

  // ErrorCode::unavailable: a port is taken.
  static Result<std::unique_ptr<PeerLinks>> open(PeerLinksOptions options, Log& log);
  virtual ~PeerLinks() = default;

  virtual int fd() const = 0;  // readable: dispatch() has something to do
  virtual Instant deadline() const = 0;
  virtual void dispatch(Instant now, const Sink& sink) = 0;

  virtual void set_cluster(const MemberId& cluster) = 0;  // other clusters' messages are dropped from now on
  virtual void know(const wire::Identity& member) = 0;    // its node key may connect from now on
  virtual void send(const gossip::Send& message) = 0;     // a failure comes back as SendFailed
  virtual void send(const node::SendLog& message) = 0;    // a failure is like a lost message
  virtual void send(const node::RelayPeer& to, const wire::RelayMessage& message) = 0;  // likewise
  // To an address of that founder, who may be anybody; likewise.
  virtual void send(const wire::Endpoint& to, const node::SendFormation& message) = 0;
  virtual void keep(const gossip::KeepLinks& links) = 0;
  virtual void check_gone(const gossip::CheckGone& check) = 0;
  // New key file while running: the first key serves and is presented, all are accepted.
  virtual Status rekey(ClusterKeys keys) = 0;
  virtual LinkCounters counters() const = 0;
};

}  // namespace dtrain::net
