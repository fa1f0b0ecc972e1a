#include "agent/net/poller.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <utility>

namespace dtrain::net {
namespace {

constexpr int kKindShift = 56;

}  // namespace

Result<Poller> Poller::open() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0)
    return fail(ErrorCode::io, std::string("could not open network: ") + ::strerror(errno),
                "free descriptors");
  return Poller(fd);
}

Poller::Poller(Poller&& other) noexcept
    : epoll_fd_(std::exchange(other.epoll_fd_, -1)), ready_(std::move(other.ready_)) {}

Poller::~Poller() {
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
}

Status Poller::add(int fd, std::uint32_t events, PollTag tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(tag.kind) << kKindShift | tag.serial;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return fail(ErrorCode::io, std::string("could not watch socket: ") + ::strerror(errno));
}

void Poller::remove(int fd) {
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

const std::vector<PollTag>& Poller::ready() {
  ready_.clear();
  std::array<epoll_event, kReadyAtOnce> events;
  const int n = ::epoll_wait(epoll_fd_, events.data(), kReadyAtOnce, 0);
  for (int i = 0; i < n; ++i) {
    const std::uint64_t word = events[static_cast<std::size_t>(i)].data.u64;
    ready_.push_back(
        {static_cast<PollTag::Kind>(word >> kKindShift), word & ((std::uint64_t{1} << kKindShift) - 1)});
  }
  return ready_;
}

}  // namespace dtrain::net
