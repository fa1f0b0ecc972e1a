#include "agent/net/gone_checks.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/net/ip_address.h"
#include "agent/net/peer_links.h"

namespace dtrain::net {
namespace {

using Answer = gossip::GoneChecked::Answer;

// Closes with a reset, so that the other side forgets the connection at once.
void close_hard(int fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(fd);
}

}  // namespace

GoneChecks::~GoneChecks() {
  for (const auto& [serial, check] : under_way_) close_hard(check.fd);
}

void GoneChecks::ask(const wire::Endpoint& to) {
  if (std::find(waiting_.begin(), waiting_.end(), to) != waiting_.end()) return;  // one result serves both
  if (waiting_.size() < kGoneChecksWaiting) waiting_.push_back(to);
  else if (overflowed_.size() < kGoneChecksWaiting) overflowed_.push_back(to);
}

Instant GoneChecks::deadline() const {
  if (!overflowed_.empty() || (!waiting_.empty() && under_way_.size() < kGoneChecks)) return Instant{};
  return under_way_.empty() ? kNever : under_way_.begin()->second.until;
}

void GoneChecks::end(std::map<std::uint64_t, Check>::iterator check, Answer answer, std::vector<gossip::Input>& out) {
  poller_.remove(check->second.fd);
  close_hard(check->second.fd);
  out.push_back(gossip::GoneChecked{check->second.to, answer});
  under_way_.erase(check);
}

// A failure here says something about this host and nothing about the other.
GoneChecks::Begun GoneChecks::connect(const wire::Endpoint& to, std::uint64_t serial) {
  const auto silent = [](const char* cause) { return Begun{-1, Answer::silent, cause}; };
  const auto address = SocketAddress::of(to);
  if (!address) return silent("not a numeric address");
  const int fd = ::socket(address->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return silent(::strerror(errno));
  const auto source = source_ip_.empty() ? std::nullopt : SocketAddress::of({source_ip_, 0});
  if (source && source->family() == address->family() && ::bind(fd, source->get(), source->size()) != 0) {
    const int cause = errno;
    ::close(fd);
    return silent(::strerror(cause));
  }
  if (::connect(fd, address->get(), address->size()) != 0 && errno != EINPROGRESS) {
    const int cause = errno;
    close_hard(fd);
    if (cause != ECONNREFUSED) return silent(::strerror(cause));
    return {-1, Answer::refused, ""};
  }
  if (!poller_.add(fd, EPOLLOUT, {PollTag::Kind::gone_check, serial})) {
    close_hard(fd);
    return silent("could not be watched");
  }
  return {fd, {}, ""};
}

void GoneChecks::begin(Instant now, const wire::Endpoint& to, QuietLog& log, std::vector<gossip::Input>& out) {
  const std::uint64_t serial = next_serial_++;
  const Begun begun = connect(to, serial);
  if (begun.fd >= 0) {
    under_way_.emplace(serial, Check{begun.fd, to, now + kGoneCheckTime});
    return;
  }
  if (!begun.cause.empty()) log.warn(now, "net.check-failed", begun.cause, to.text(), "see this host's network, firewall and open files");
  out.push_back(gossip::GoneChecked{to, begun.answer});
}

void GoneChecks::examine(std::uint64_t serial, std::vector<gossip::Input>& out) {
  const auto check = under_way_.find(serial);
  if (check == under_way_.end()) return;
  int cause = 0;
  socklen_t size = sizeof cause;
  Check& c = check->second;
  if (c.connected) return hear(check, out);
  if (::getsockopt(c.fd, SOL_SOCKET, SO_ERROR, &cause, &size) != 0) cause = errno;
  if (cause != 0 && cause != ECONNRESET) return end(check, cause == ECONNREFUSED ? Answer::refused : Answer::silent, out);
  c.connected = true;
  poller_.remove(c.fd);
  if (!poller_.add(c.fd, EPOLLIN, {PollTag::Kind::gone_check, serial})) return end(check, Answer::accepts, out);
}

// Handles its first bytes, or the end of the connection.
void GoneChecks::hear(std::map<std::uint64_t, Check>::iterator check, std::vector<gossip::Input>& out) {
  Check& c = check->second;
  char byte = 0;
  const auto got = ::recv(c.fd, &byte, 1, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0 || c.tries >= kGoneCheckTries) return end(check, Answer::accepts, out);
  const Begun begun = connect(c.to, check->first);
  if (begun.fd < 0) return end(check, begun.answer, out);
  poller_.remove(c.fd);
  close_hard(c.fd);
  c.fd = begun.fd;
  c.connected = false;
  ++c.tries;
}

void GoneChecks::service(Instant now, QuietLog& log, std::vector<gossip::Input>& out) {
  while (!under_way_.empty() && under_way_.begin()->second.until <= now)
    end(under_way_.begin(), under_way_.begin()->second.connected ? Answer::accepts : Answer::silent, out);
  for (const wire::Endpoint& to : std::exchange(overflowed_, {})) out.push_back(gossip::GoneChecked{to, Answer::silent});
  for (; !waiting_.empty() && under_way_.size() < kGoneChecks; waiting_.pop_front()) begin(now, waiting_.front(), log, out);
}

}  // namespace dtrain::net
