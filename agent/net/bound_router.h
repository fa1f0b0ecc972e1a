// A ROUTER on one of this agent's listening sockets, hardened against strangers: failed handshakes are logged, floods
// leave no memory in use, and connections are turned away when descriptors have run out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/net/cluster_keys.h"
#include "agent/net/listen_socket.h"
#include "agent/net/poller.h"
#include "agent/net/quiet_log.h"
#include "agent/net/socket_events.h"
#include "agent/net/zmq_socket.h"

namespace dtrain::net {

inline constexpr std::size_t kSocketEventsPerTurn = 1024;
inline constexpr std::size_t kInboundFlood = 512;     // after so many connections have come and gone, memory is given back
inline constexpr std::size_t kInboundNamed = 16'384;  // connections whose address is remembered for the log

class BoundRouter {
 public:
  struct Options {
    wire::Endpoint at;
    std::uint64_t serial = 0;                // in the poller, of PollTag::Kind::router and router_monitor
    std::string name;                        // unique in the context
    std::function<bool(ZmqSocket&)> set_up;  // false: ZeroMQ refused an option
    std::string_view handshake_next;         // advice on a failed handshake, for the log
  };
  // Binds at once. `serves`: the key pair for connections; null: plain. ErrorCode::unavailable: the port is taken.
  static Result<std::unique_ptr<BoundRouter>> open(const ZmqContext& context, Poller& poller, Options options, const KeyPair* serves);
  ~BoundRouter();
  BoundRouter(const BoundRouter&) = delete;
  BoundRouter& operator=(const BoundRouter&) = delete;

  ZmqSocket& socket() { return socket_; }
  // Logs failed handshakes and turns connections away if no descriptor is left. Returns true if there is more to do.
  bool watch(Instant now, QuietLog& log);
  // Serves with that pair from now on. Inbound connections end, and the other side makes them anew.
  Status serve(const KeyPair* serves);

  // When a listener that was closed because nobody could be turned away is opened again; kNever: it is open.
  Instant deadline() const { return shut_until_; }
  void service(Instant now, const KeyPair* serves);

  // Connections open at the last watch(), including those whose handshake is not done.
  std::size_t connections_from(const std::string& ip) const;
  std::uint64_t handshakes_failed() const { return handshakes_failed_; }
  std::uint64_t handshakes_incomplete() const { return handshakes_incomplete_; }
  std::uint64_t turned_away() const { return turned_away_; }
  // To be called after each message sent: data may have become readable without an event on the descriptor.
  bool readable() const { return (socket_.events() & ZMQ_POLLIN) != 0; }

 private:
  BoundRouter(Poller& poller, ListenSocket listener, ZmqSocket socket, SocketEvents events, std::string endpoint,
              std::string_view handshake_next);
  Status bind(const KeyPair* serves);
  void unbind();
  bool watch_events(Instant now, QuietLog& log, int& exhausted);
  void note_inbound(int fd);
  std::string forget_inbound(int fd);
  void give_memory_back();
  void shut(Instant now);

  Poller& poller_;
  ListenSocket listener_;
  ZmqSocket socket_;
  SocketEvents events_;
  const std::string endpoint_;
  const std::string handshake_next_;
  bool bound_ = false;
  Instant shut_until_ = kNever;
  std::map<int, std::string> inbound_;       // descriptor -> address
  std::map<std::string, std::size_t> from_;  // address -> how many of inbound_
  std::size_t inbound_peak_ = 0;             // since memory was given back
  bool failed_ = false;                      // the last event was a failed handshake: the next names its descriptor
  std::uint64_t handshakes_failed_ = 0, handshakes_incomplete_ = 0, turned_away_ = 0;
};

}  // namespace dtrain::net
