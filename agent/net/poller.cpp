#include "agent/net/poller.h"

#include <errno.h>
#include <string.h>

namespace dtrain::net {
namespace {

constexpr int kKindShift = 56;

}  // namespace

Result<Poller> Poller::open() {
  Poller poller;
  if (!poller.epoll_) return fail(ErrorCode::io, std::string("could not open network: ") + ::strerror(errno), "free descriptors");
  return poller;
}

Status Poller::add(int fd, std::uint32_t events, PollTag tag) {
  if (epoll_.add(fd, static_cast<std::uint64_t>(tag.kind) << kKindShift | tag.serial, events)) return {};
  return fail(ErrorCode::io, std::string("could not watch socket: ") + ::strerror(errno));
}

void Poller::remove(int fd) { epoll_.remove(fd); }

const std::vector<PollTag>& Poller::ready() {
  ready_.clear();
  epoll_event events[kReadyAtOnce];
  for (const epoll_event& event : epoll_.ready(events)) {
    const std::uint64_t word = event.data.u64;
    ready_.push_back({static_cast<PollTag::Kind>(word >> kKindShift), word & ((std::uint64_t{1} << kKindShift) - 1)});
  }
  return ready_;
}

}  // namespace dtrain::net
