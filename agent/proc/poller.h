// The epoll descriptor behind Runner::fd(), and the clock of this directory.
#pragma once

#include <sys/epoll.h>
#include <time.h>

#include <cstdint>

#include "agent/proc/unique_fd.h"
#include "common/base/time.h"

namespace dtrain::proc {

inline Instant boot_now() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return Instant(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
}

class Poller {
 public:
  Poller() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {}
  int fd() const { return fd_.get(); }
  // Level-triggered, for reading. `tag` comes back from wait(). Ends by itself when fd is closed.
  bool add(int fd, std::uint64_t tag) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return ::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  // As add(), also for one that is there already; for writing, too, where that is wanted.
  bool set(int fd, std::uint64_t tag, bool writing) {
    epoll_event event{};
    event.events = EPOLLIN | (writing ? EPOLLOUT : 0u);
    event.data.u64 = tag;
    return ::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0 || ::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  // For one that is to be another's.
  void remove(int fd) { ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }
  // What is ready now; never waits.
  int poll(epoll_event* events, int most) { return ::epoll_wait(fd_.get(), events, most, 0); }

 private:
  UniqueFd fd_;
};

}  // namespace dtrain::proc
