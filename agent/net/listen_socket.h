// A listening TCP socket of our own, of which ZeroMQ gets a duplicate: the port is ours from open to close,
// so that a new key can be served without a moment in which connections are refused; and when descriptors run
// out, we can turn connections away that ZeroMQ would try to accept again and again, a whole CPU long.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/wire/gossip.h"

namespace dtrain::net {

inline constexpr int kTurnedAwayAtOnce = 250;  // fits an exit status

class ListenSocket {
 public:
  // ErrorCode::unavailable: the port is taken.
  static Result<ListenSocket> open(const wire::Endpoint& at);
  ListenSocket(ListenSocket&& other) noexcept;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();

  // For ZMQ_USE_FD; ZeroMQ closes it. -1: no descriptor is left.
  int duplicate() const;
  // Accepts and closes what waits, at most kTurnedAwayAtOnce; how many. None: it could not be done.
  std::optional<int> turn_away() const;

 private:
  explicit ListenSocket(int fd);
  int fd_;
};

}  // namespace dtrain::net
