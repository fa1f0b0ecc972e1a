// A listening TCP socket of our own, of which ZeroMQ gets a duplicate: the port is ours from open to close,
// so that a new key can be served without a moment in which connections are refused; and when descriptors run
// out, we can turn connections away that ZeroMQ would try to accept again and again, a whole CPU long.
#pragma once

#include <array>
#include <string>

#include "common/base/result.h"
#include "common/wire/gossip.h"

namespace dtrain::net {

class ListenSocket {
 public:
  // ErrorCode::unavailable: the port is taken.
  static Result<ListenSocket> open(const wire::Endpoint& at);
  ListenSocket(ListenSocket&& other) noexcept;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();

  // For ZMQ_USE_FD; ZeroMQ closes it. -1: no descriptor is left.
  int duplicate() const;
  // Accepts and closes what waits, with the descriptors kept for that; how many.
  int turn_away();
  // False: the spares are used up and could not be replaced; nobody can be turned away.
  bool has_spare() const;
  // Takes back descriptors for that, where some are free again.
  void refill();

 private:
  explicit ListenSocket(int fd);
  int fd_;
  // Several: ZeroMQ's thread may be faster and take one that was given up for a moment.
  std::array<int, 8> spares_;
};

}  // namespace dtrain::net
