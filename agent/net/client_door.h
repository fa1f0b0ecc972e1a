// The door for dtrainctl on other machines: a ROUTER two ports above gossip. CURVE authenticates the client: only
// permitted keys are let in, each as the user that it stands for. Its bytes are bridged to a socket pair, whose other
// end the owner serves like a connection of this host, with the same framing, limits and permissions.
//
// Bounds: kDoorVisits connections, kVisitsPerKey for each key, and kDoorPerAddress from each address, including those
// that only shake hands; for each at most relay::kBridgeWindowBytes that were not handed on, and kDoorHighWater
// messages in each direction in ZeroMQ. A client that has vanished is dropped after relay::kBridgeSilence. The door
// has its own context and I/O thread, so that clients never delay a pong.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/net/bound_router.h"
#include "agent/net/bridge.h"
#include "agent/net/cluster_keys.h"
#include "agent/net/poller.h"
#include "agent/net/quiet_log.h"
#include "agent/net/zap_socket.h"
#include "common/base/log.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/node/event.h"

namespace dtrain::net {

inline constexpr std::uint16_t kClientPortAbove = 2;  // above the gossip port
inline constexpr std::size_t kDoorVisits = 128;
inline constexpr std::size_t kVisitsPerKey = 32;
inline constexpr std::size_t kDoorPerAddress = 256;  // TCP connections
inline constexpr int kDoorHighWater = 128;           // messages of one connection in ZeroMQ's queue, in each direction
inline constexpr std::size_t kDoorMessagesPerTurn = 256;

class ClientDoor {
 public:
  struct World {
    // The caller that a key's user is on this host; ErrorCode::refused: not permitted. Asked for each newcomer, and
    // again by allow().
    std::function<Result<node::Caller>(const std::string& user)> welcome;
    // Serves one end of a socket pair, a stream, as that caller's connection; takes ownership of it.
    std::function<void(int fd, node::Caller caller)> adopt;
  };

  // Listens at once, and lets nobody in before allow(). ErrorCode::unavailable: the port is taken.
  static Result<std::unique_ptr<ClientDoor>> open(const wire::Endpoint& at, const ClusterKeys& keys, World world, Log& log);
  // Ends all visits.
  ~ClientDoor();
  ClientDoor(const ClientDoor&) = delete;
  ClientDoor& operator=(const ClientDoor&) = delete;

  int fd() const { return poller_.fd(); }  // readable: dispatch() has something to do
  Instant deadline() const;
  void dispatch(Instant now);

  // Sets the permitted public keys and their users. A visit ends at once if its key is no longer among them, stands
  // for another user, or belongs to a user who is now refused.
  void allow(std::map<CurveKey, std::string> users);
  // Serves with the first pair from now on; if that changed, visits end and clients connect again.
  Status rekey(const ClusterKeys& keys);

  std::size_t visits() const { return visits_.size(); }
  std::uint64_t refused() const { return refused_; }  // connections with keys that are not permitted, since the start

 private:
  struct Visit {
    std::string name;  // ZeroMQ's name of the connection: ascending, never reused
    CurveKey key{};
    std::string user;
    std::unique_ptr<Bridge> bridge;
  };
  using Visits = std::map<std::uint64_t, Visit>;

  ClientDoor(ZmqContext context, Poller poller, World world, Log& log);
  bool judge_some(Instant now);
  void judge(Instant now, const ZapQuestion& question);
  bool receive_some(Instant now);
  void receive(Instant now, const std::string& name, const Frame& payload);
  void welcome(Instant now, const std::string& name, const CurveKey& key, std::uint32_t version);
  Result<node::Caller> may_enter(const CurveKey& key) const;
  void turn_away(const std::string& name, const Error& error);
  ZmqSocket::Sent send(const std::string& name, std::string_view message);
  void pump(Instant now, std::uint64_t serial);
  void end(Visits::iterator visit, bool say_so);

  ZmqContext context_;
  Poller poller_;
  const World world_;
  QuietLog quiet_;
  KeyPair serves_;
  std::unique_ptr<ZapSocket> zap_;  // opened before the router, so that nobody gets in unchecked
  std::unique_ptr<BoundRouter> router_;
  std::map<CurveKey, std::string> users_;
  Visits visits_;                               // by serial in the poller
  std::map<std::string, std::uint64_t> named_;  // -> serial
  std::set<PollTag> unfinished_;                // there is more to do for these; their descriptors may stay silent
  std::uint64_t next_serial_ = 1;
  std::uint64_t refused_ = 0;
};

}  // namespace dtrain::net
