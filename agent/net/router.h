// The bound ROUTER of one lane, with all inbound connections.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/net/bound_router.h"
#include "agent/net/gate.h"
#include "agent/net/key_ring.h"

namespace dtrain::net {

inline constexpr std::size_t kBulkPerTurn = 16;  // large messages read in one turn

class Router {
 public:
  // Binds at once. `lane` is also its serial in the poller.
  static Result<std::unique_ptr<Router>> open(const ZmqContext& context, Poller& poller, const wire::Endpoint& listen, wire::Lane lane,
                                              const KeyRing& keys);

  // Returns true if there is more to do.
  bool receive(Instant now, Gate& gate, std::vector<gossip::Input>& out);
  // Logs failed handshakes and turns connections away if no descriptor is left. Returns true if there is more to do.
  bool watch(Instant now, QuietLog& log) { return bound_->watch(now, log); }
  // Sends on the connection that `path` names; a message to a vanished one is lost. Returns false if its queue is full.
  bool reply(gossip::ReplyPath path, std::string_view header, std::string_view body);
  // Serves with the ring's first key from now on. Inbound connections end, and the other side makes them anew.
  Status serve(const KeyRing& keys);

  // When a listener that was closed because nobody could be turned away is opened again; kNever: it is open.
  Instant deadline() const { return bound_->deadline(); }
  void service(Instant now, const KeyRing& keys);

  static bool is_path(gossip::ReplyPath path, wire::Lane lane);
  std::uint64_t handshakes_failed() const { return bound_->handshakes_failed(); }
  std::uint64_t handshakes_incomplete() const { return bound_->handshakes_incomplete(); }
  std::uint64_t turned_away() const { return bound_->turned_away(); }
  // To be called after each reply(): data may have become readable without an event on the descriptor.
  bool readable() const { return bound_->readable(); }

 private:
  Router(std::unique_ptr<BoundRouter> bound, wire::Lane lane) : bound_(std::move(bound)), lane_(lane) {}

  std::unique_ptr<BoundRouter> bound_;
  const wire::Lane lane_;
};

}  // namespace dtrain::net
