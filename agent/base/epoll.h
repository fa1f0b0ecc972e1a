// An epoll descriptor with one owner. It waits for several descriptors and can itself be polled: it is readable while
// one of them is ready.
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "agent/base/unique_fd.h"

namespace dtrain {

class Epoll {
 public:
  Epoll() : fd_(::epoll_create1(EPOLL_CLOEXEC)) {}
  explicit operator bool() const { return static_cast<bool>(fd_); }  // false: the constructor failed and left the cause in errno
  int fd() const { return fd_.get(); }

  // Watches `fd`, level-triggered, for reading unless `events` says otherwise. ready() returns `tag` with each event. The
  // kernel stops watching when the last descriptor of that open file is closed. Returns false and sets errno on failure.
  bool add(int fd, std::uint64_t tag = 0, std::uint32_t events = EPOLLIN) { return control(EPOLL_CTL_ADD, fd, tag, events); }
  bool change(int fd, std::uint64_t tag, std::uint32_t events) { return control(EPOLL_CTL_MOD, fd, tag, events); }
  // Changes how `fd` is watched, and adds it if it is not watched yet.
  bool set(int fd, std::uint64_t tag, std::uint32_t events) { return change(fd, tag, events) || add(fd, tag, events); }
  void remove(int fd) { ::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  // Returns the events that are ready now, at most as many as `events` holds; never waits.
  template <std::size_t N>
  std::span<const epoll_event> ready(epoll_event (&events)[N]) const {
    const int count = ::epoll_wait(fd_.get(), events, static_cast<int>(N), 0);
    return {events, static_cast<std::size_t>(count > 0 ? count : 0)};
  }

 private:
  bool control(int operation, int fd, std::uint64_t tag, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = tag;
    return ::epoll_ctl(fd_.get(), operation, fd, &event) == 0;
  }

  UniqueFd fd_;
};

// A descriptor that is readable from raise() until lower().
class WorkFlag {
 public:
  WorkFlag() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  explicit operator bool() const { return static_cast<bool>(fd_); }  // false: the constructor failed and left the cause in errno
  int fd() const { return fd_.get(); }
  // May be called from any thread.
  void raise() const { (void)::eventfd_write(fd_.get(), 1); }
  void lower() const {
    eventfd_t ignored = 0;
    (void)::eventfd_read(fd_.get(), &ignored);
  }
  // For flags that one thread alone sets: asks the kernel only if the state changes.
  void set(bool wanted) {
    if (wanted == set_) return;
    wanted ? raise() : lower();
    set_ = wanted;
  }

 private:
  UniqueFd fd_;
  bool set_ = false;
};

}  // namespace dtrain
