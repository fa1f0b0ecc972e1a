// A listening TCP socket of which ZeroMQ gets a duplicate. So the port stays this agent's from open to close, and a
// new key can be served without a moment in which connections are refused; and when descriptors run out, connections
// can be turned away that ZeroMQ would try to accept again and again, at full CPU load.
#pragma once

#include <optional>
#include <string>

#include "agent/base/unique_fd.h"
#include "common/base/result.h"
#include "common/wire/gossip.h"

namespace dtrain::net {

inline constexpr int kTurnedAwayAtOnce = 250;  // fits an exit status

class ListenSocket {
 public:
  // ErrorCode::unavailable: the port is taken.
  static Result<ListenSocket> open(const wire::Endpoint& at);

  // For ZMQ_USE_FD; ZeroMQ closes it. -1: no descriptor is left.
  int duplicate() const;
  // Accepts and closes waiting connections, at most kTurnedAwayAtOnce; returns their number. nullopt: it could not be done.
  std::optional<int> turn_away() const;

 private:
  explicit ListenSocket(int fd) : fd_(fd) {}
  UniqueFd fd_;
};

}  // namespace dtrain::net
