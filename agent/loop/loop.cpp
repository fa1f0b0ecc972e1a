#include "agent/loop/loop.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <limits>

#include "agent/loop/clock.h"

namespace dtrain::loop {
namespace {

std::uint64_t pack(int fd, std::uint32_t serial) { return (std::uint64_t{serial} << 32) | static_cast<std::uint32_t>(fd); }

}  // namespace

Result<std::unique_ptr<Loop>> Loop::open() {
  std::unique_ptr<Loop> loop(new Loop);
  if (!loop->epoll_)
    return fail(ErrorCode::io, std::string("could not create the poll loop: ") + ::strerror(errno),
                "raise the limit of open files (ulimit -n)");
  return loop;
}

Loop::Loop() : now_(read_clocks()) {}

Status Loop::watch(int fd, std::uint32_t events, Callback callback) {
  const auto found = watches_.find(fd);
  const std::uint32_t serial = next_serial_++;
  const std::uint64_t tag = pack(fd, serial);
  if (!(found == watches_.end() ? epoll_.add(fd, tag, events) : epoll_.change(fd, tag, events)))
    return fail(ErrorCode::io, "could not watch descriptor " + std::to_string(fd) + ": " + ::strerror(errno));
  watches_[fd] = Watch{std::move(callback), serial};
  return {};
}

void Loop::unwatch(int fd) {
  if (watches_.erase(fd) != 0) epoll_.remove(fd);
}

int Loop::wait(epoll_event* ready, Instant deadline) {
  timespec timeout{};
  timespec* limit = nullptr;
  Duration left{};
  if (deadline != kNever) {
    left = std::max(deadline - read_clocks().boot, Duration::zero());
    timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
    timeout.tv_nsec = (left % 1s).count();
    limit = &timeout;
  }
  const int n = ::epoll_pwait2(epoll_.fd(), ready, kReadyPerTurn, limit, nullptr);
  if (n >= 0 || (errno != ENOSYS && errno != EPERM)) return n;
  // Older container sandboxes refuse the newer call: then whole milliseconds, rounded up so that the loop never spins.
  int milliseconds = -1;
  if (limit) milliseconds = static_cast<int>(std::min<std::int64_t>((left + 999'999ns) / 1ms, std::numeric_limits<int>::max()));
  return ::epoll_wait(epoll_.fd(), ready, kReadyPerTurn, milliseconds);
}

Status Loop::turn(Instant deadline) {
  epoll_event ready[kReadyPerTurn];
  const int n = wait(ready, deadline);
  now_ = read_clocks();
  if (n < 0) {
    if (errno == EINTR) return {};
    return fail(ErrorCode::io, std::string("could not wait for events: ") + ::strerror(errno));
  }
  for (int i = 0; i < n; ++i) {
    const int fd = static_cast<int>(ready[i].data.u64 & 0xffffffffu);
    const auto serial = static_cast<std::uint32_t>(ready[i].data.u64 >> 32);
    const auto found = watches_.find(fd);
    if (found == watches_.end() || found->second.serial != serial) continue;  // unwatched earlier in this turn
    const Callback callback = found->second.callback;                         // a copy: the callback may unwatch itself
    callback(ready[i].events);
  }
  return {};
}

}  // namespace dtrain::loop
