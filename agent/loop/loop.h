// The poll loop: descriptors with callbacks and one deadline. One thread owns it.
//
// One turn() waits until a descriptor is ready or the deadline is reached, reads both clocks once, and calls the
// callback of each ready descriptor once. Callbacks do bounded work and return; what is left over is level-triggered
// and comes again in the next turn, so that no source can starve another. Anything that offers a descriptor can be
// embedded: a nested epoll, a signalfd, an eventfd, a ZeroMQ socket's ZMQ_FD (edge-like: read ZMQ_EVENTS in the
// callback until nothing is left).
//
// The wait is measured by CLOCK_MONOTONIC while deadlines are CLOCK_BOOTTIME: a deadline that passed during a suspend
// is noticed at the first event after it, at the latest when the remaining time has passed once more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "agent/base/epoll.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::loop {

inline constexpr int kReadyPerTurn = 64;  // descriptors served in one turn; the rest wait for the next

class Loop {
 public:
  using Callback = std::function<void(std::uint32_t events)>;  // EPOLLIN | EPOLLOUT | ...

  static Result<std::unique_ptr<Loop>> open();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Calls `callback` in every turn in which `fd` is ready for one of `events`. The caller keeps the descriptor open
  // until unwatch(). Watching a watched descriptor again changes events and callback.
  Status watch(int fd, std::uint32_t events, Callback callback);
  // Safe inside any callback, even the descriptor's own; the callback is not called again.
  void unwatch(int fd);

  // One turn. `deadline`: kNever waits without end; an instant in the past does not wait.
  Status turn(Instant deadline);

  // Both clocks as read once in this turn.
  const Now& now() const { return now_; }

 private:
  Loop();
  int wait(epoll_event* ready, Instant deadline);

  struct Watch {
    Callback callback;
    std::uint32_t serial = 0;  // distinguishes a new owner of a reused descriptor number from the old one
  };
  Epoll epoll_;
  std::uint32_t next_serial_ = 1;
  std::map<int, Watch> watches_;
  Now now_;
};

}  // namespace dtrain::loop
