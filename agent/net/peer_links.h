// Links to other agents over ZeroMQ: two bound ROUTERs (gossip, and bulk one port above on its own I/O thread, so
// that bulk never delays a pong), and one DEALER for each peer and lane that is used. CURVE whenever there is a key;
// ZAP always.
//
// Touches the world and decides nothing: common/wire checks and decodes bytes, and Membership decides what follows.
// All sockets belong to the loop's thread.
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

inline constexpr std::size_t kIdleDealers = 64;       // besides KeepLinks; beyond, the least recently used is closed
inline constexpr int kPeerHighWater = 64;             // messages queued to or from one peer; further ones are dropped
inline constexpr std::size_t kReceivedPerTurn = 256;  // messages read from each ROUTER in one turn
inline constexpr std::size_t kGoneChecks = 64;        // bare connects in flight; further ones wait

struct PeerLinksOptions {
  wire::Endpoint listen;  // gossip; bulk is port + 1
  MemberId self;
  std::optional<ClusterKeys> keys;  // unset: plain, loopback peers only
};

// Counted since the start.
struct LinkCounters {
  std::uint64_t received = 0, dropped = 0, unsent = 0;
  std::uint64_t keys_refused = 0;       // by ZAP
  std::uint64_t handshakes_failed = 0;  // inbound, before a key was seen
  std::uint64_t handshakes_incomplete =
      0;                          // inbound, closed or silent before the end: also probes that only look whether the agent is there
  std::uint64_t turned_away = 0;  // because no descriptor was left
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

  virtual void set_cluster(const MemberId& cluster) = 0;  // messages of other clusters are dropped from now on
  virtual void know(const wire::Identity& member) = 0;    // its node key may connect from now on
  virtual void send(const gossip::Send& message) = 0;     // a failure is reported as SendFailed
  virtual void send(const node::SendLog& message) = 0;    // a failure counts as a lost message
  virtual void send(const node::RelayPeer& to, const wire::RelayMessage& message) = 0;  // a failure counts as a lost message
  // To an address of that founder, where anybody may listen. A failure counts as a lost message.
  virtual void send(const wire::Endpoint& to, const node::SendFormation& message) = 0;
  virtual void keep(const gossip::KeepLinks& links) = 0;
  virtual void check_gone(const gossip::CheckGone& check) = 0;
  // Uses a new key file while running: the first pair is presented, all are accepted.
  virtual Status rekey(ClusterKeys keys) = 0;
  virtual LinkCounters counters() const = 0;
};

}  // namespace dtrain::net
