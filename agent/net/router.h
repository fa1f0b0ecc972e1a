// The bound ROUTER of one lane: everybody's inbound connections.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/net/gate.h"
#include "agent/net/key_ring.h"
#include "agent/net/listen_socket.h"
#include "agent/net/poller.h"
#include "agent/net/socket_events.h"
#include "agent/net/zmq_socket.h"

namespace dtrain::net {

inline constexpr std::size_t kBulkPerTurn = 16;  // large messages read in one turn
inline constexpr std::size_t kSocketEventsPerTurn = 1024;
inline constexpr std::size_t kInboundFlood = 512;     // when as many have come and gone, memory is given back
inline constexpr std::size_t kInboundNamed = 16'384;  // connections whose address is remembered for the log

class Router {
 public:
  // Binds at once. `lane` also is its serial in the poller.
  static Result<std::unique_ptr<Router>> open(const ZmqContext& context, Poller& poller,
                                              const wire::Endpoint& listen, wire::Lane lane,
                                              const KeyRing& keys);
  ~Router();
  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // True: more is waiting.
  bool receive(Instant now, Gate& gate, std::vector<gossip::Input>& out);
  // Tells of failed handshakes; turns connections away that no descriptor is left for. True: more is waiting.
  bool watch(Instant now, QuietLog& log);
  // On the connection that `path` names. A vanished one swallows it. False: its queue is full.
  bool reply(gossip::ReplyPath path, std::string_view header, std::string_view body);
  // Serves with the ring's first key from now on. Inbound connections end and are made anew by the other
  // side.
  Status serve(const KeyRing& keys);

  // When a door that was shut because nobody could be turned away is tried again; kNever: it is open.
  Instant deadline() const { return shut_until_; }
  void service(Instant now, const KeyRing& keys);

  static bool is_path(gossip::ReplyPath path, wire::Lane lane);
  std::uint64_t handshakes_failed() const { return handshakes_failed_; }
  std::uint64_t handshakes_incomplete() const { return handshakes_incomplete_; }
  std::uint64_t turned_away() const { return turned_away_; }
  // Something may have become readable without its descriptor telling: after each reply().
  bool readable() const { return (socket_.events() & ZMQ_POLLIN) != 0; }

 private:
  Router(Poller& poller, ListenSocket listener, ZmqSocket socket, SocketEvents events, std::string endpoint,
         wire::Lane lane);
  Status bind(const KeyRing& keys);
  bool watch_events(Instant now, QuietLog& log, int& exhausted);
  void give_memory_back();
  void shut(Instant now);

  Poller& poller_;
  ListenSocket listener_;
  ZmqSocket socket_;
  SocketEvents events_;
  const std::string endpoint_;
  const wire::Lane lane_;
  bool bound_ = false;
  Instant shut_until_ = kNever;
  std::map<int, std::string> inbound_;  // descriptor -> address
  std::size_t inbound_peak_ = 0;        // since memory was given back
  bool failed_ = false;  // the last event was a failed handshake: the next names its descriptor
  std::uint64_t handshakes_failed_ = 0, handshakes_incomplete_ = 0, turned_away_ = 0;
};

}  // namespace dtrain::net
