// The door for dtrainctl on other machines: a ROUTER two ports above gossip. Who is at the other end says CURVE: only keys that were
// allowed are let in, each as the user that it stands for. What they say then is bridged to a socket pair, whose other end the owner
// serves like a connection of this host: framing, limits of messages and what may be done are its.
//
// Bounds: kDoorVisits connections, kVisitsPerKey of one key, kDoorPerAddress from one address, those among them that only shake
// hands; of each at most relay::kBridgeWindowBytes that were not handed on, and kDoorHighWater messages each way in ZeroMQ. Who has
// vanished is gone after relay::kBridgeSilence. A context and an I/O thread of its own: what clients do delays no pong.
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

inline constexpr std::uint16_t kClientPortAbove = 2;   // gossip
inline constexpr std::size_t kDoorVisits = 128;
inline constexpr std::size_t kVisitsPerKey = 32;
inline constexpr std::size_t kDoorPerAddress = 256;    // TCP connections
inline constexpr int kDoorHighWater = 128;             // messages of one connection in ZeroMQ's queue, in each direction
inline constexpr std::size_t kDoorMessagesPerTurn = 256;

class ClientDoor {
 public:
  struct World {
    // Who a key's user is on this host; ErrorCode::refused: may not come in. Asked for each newcomer, and again by allow().
    std::function<Result<node::Caller>(const std::string& user)> welcome;
    // Serves one end of a socket pair, a stream, as that caller's connection; owns it.
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

  // Public keys and whose they are, from now on. A visit of a key that is no more among them, stands for somebody else, or whose
  // user is refused by now, ends at once.
  void allow(std::map<CurveKey, std::string> users);
  // Serves with the first pair from now on; where that changes, visits end and come again.
  Status rekey(const ClusterKeys& keys);

  std::size_t visits() const { return visits_.size(); }
  std::uint64_t refused() const { return refused_; }  // keys that are not allowed, since the start

 private:
  struct Visit {
    std::string name;  // ZeroMQ's of the connection: counted up, it does not come back
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
  std::unique_ptr<ZapSocket> zap_;  // before the router: nobody gets in unchecked
  std::unique_ptr<BoundRouter> router_;
  std::map<CurveKey, std::string> users_;
  Visits visits_;                             // by serial in the poller
  std::map<std::string, std::uint64_t> named_;  // -> serial
  std::set<PollTag> unfinished_;              // more is waiting there; their descriptors may stay silent
  std::uint64_t next_serial_ = 1;
  std::uint64_t refused_ = 0;
};

}  // namespace dtrain::net
