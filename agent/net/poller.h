// One epoll descriptor over everything that PeerLinks waits for, so that its owner waits for one descriptor
// only.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/base/epoll.h"
#include "common/base/result.h"

namespace dtrain::net {

// Names a ready descriptor: its kind, and which one of that kind.
struct PollTag {
  enum class Kind : std::uint8_t { zap, router, router_monitor, dealer, dealer_monitor, gone_check, pipe, stop };
  Kind kind{};
  std::uint64_t serial = 0;  // below 2^56
  auto operator<=>(const PollTag&) const = default;
};

class Poller {
 public:
  static Result<Poller> open();
  int fd() const { return epoll_.fd(); }
  // ErrorCode::io. The caller must remove a descriptor before closing it.
  Status add(int fd, std::uint32_t events, PollTag tag);
  void remove(int fd);
  // The tags that are ready now, at most kReadyAtOnce; the others come with the next call. Never waits.
  const std::vector<PollTag>& ready();

 private:
  Poller() = default;
  Epoll epoll_;
  std::vector<PollTag> ready_;
};

inline constexpr int kReadyAtOnce = 128;

}  // namespace dtrain::net
