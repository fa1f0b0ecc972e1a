// Checks whether names and members answer.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "agent/host/address.h"
#include "agent/host/doctor_facts.h"
#include "agent/host/resolver.h"

namespace dtrain::host {
namespace {

using Answer = node::Contact::Answer;
using Clock = std::chrono::steady_clock;

// Closes with a reset, so that the other side forgets the connection at once.
void close_hard(int fd) {
  const linger at_once{1, 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(fd);
}

struct Try {
  node::Contact* contact = nullptr;
  int fd = -1;
  Clock::time_point until;
};

void settle(node::Contact& contact, int cause) {
  switch (cause) {
    case 0: contact.answer = Answer::accepts; return;
    case ECONNREFUSED: contact.answer = Answer::refused; return;
    case ETIMEDOUT: contact.answer = Answer::silent; return;
    default: contact.answer = Answer::failed; contact.cause = ::strerror(cause);
  }
}

// -1: it is settled.
int begin(node::Contact& contact) {
  sockaddr_storage to{};
  socklen_t size = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&to);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&to);
  if (::inet_pton(AF_INET, contact.to.ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(contact.to.port);
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, contact.to.ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(contact.to.port);
    size = sizeof *v6;
  } else {
    return settle(contact, EINVAL), -1;
  }
  const int fd = ::socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return settle(contact, errno), -1;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), size) == 0) {
    close_hard(fd);
    return settle(contact, 0), -1;
  }
  if (errno == EINPROGRESS) return fd;
  settle(contact, errno);
  close_hard(fd);
  return -1;
}

void examine(Try& tried, bool answered) {
  int cause = ETIMEDOUT;
  socklen_t size = sizeof cause;
  if (answered && ::getsockopt(tried.fd, SOL_SOCKET, SO_ERROR, &cause, &size) != 0) cause = errno;
  settle(*tried.contact, cause);
  close_hard(std::exchange(tried.fd, -1));
}

}  // namespace

std::vector<node::Contact> try_contacts(const std::vector<node::ExamPeer>& peers, Duration one, Duration all) {
  std::vector<node::Contact> contacts;
  for (const node::ExamPeer& peer : peers)
    for (const bool bulk : {false, true}) {
      const wire::Endpoint to{peer.address.ip, static_cast<std::uint16_t>(peer.address.port + (bulk ? 1 : 0))};
      contacts.push_back({Answer::not_tried, peer.name, to, bulk, ""});
    }
  const Clock::time_point last = Clock::now() + all;
  std::vector<Try> open;
  std::vector<pollfd> polled;
  auto next = contacts.begin();
  while (next != contacts.end() || !open.empty()) {
    for (; next != contacts.end() && open.size() < kContactsAtOnce; ++next) {
      if (Clock::now() >= last) break;
      if (const int fd = begin(*next); fd >= 0) open.push_back({&*next, fd, std::min(last, Clock::now() + one)});
    }
    if (open.empty()) break;  // no time for the rest
    polled.clear();
    for (const Try& tried : open) polled.push_back({tried.fd, POLLOUT, 0});
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(open.front().until - Clock::now());
    (void)::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(wait.count(), 0)));
    for (std::size_t i = 0; i < open.size(); ++i)
      if (polled[i].revents != 0 || open[i].until <= Clock::now()) examine(open[i], polled[i].revents != 0);
    std::erase_if(open, [](const Try& tried) { return tried.fd < 0; });
  }
  return contacts;
}

namespace {

constexpr unsigned kLookUps = 4;  // threads at a time that wait for name servers; beyond, names count as unanswered

class LookUpSlot {  // one of kLookUps, in the whole process
 public:
  LookUpSlot() : had_(under_way().fetch_add(1) < kLookUps) {}
  ~LookUpSlot() { --under_way(); }
  LookUpSlot(const LookUpSlot&) = delete;
  LookUpSlot& operator=(const LookUpSlot&) = delete;
  bool had() const { return had_; }

 private:
  static std::atomic<unsigned>& under_way() {
    static std::atomic<unsigned> count = 0;
    return count;
  }
  const bool had_;
};

}  // namespace

void look_up(std::vector<node::Lookup>& lookups, Duration within) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable more;
    std::vector<node::Lookup> done;  // so far, in order
    LookUpSlot slot;                 // held until the thread has ended
  };
  const auto shared = std::make_shared<Shared>();
  for (node::Lookup& look : lookups) look.answered = false;
  if (!shared->slot.had()) return;
  // Detached: a name server may be silent for longer than anybody waits. What the thread uses is shared. A late
  // result is dropped.
  try {
    std::thread([shared, wanted = lookups, until = Clock::now() + within]() mutable {
      try {
        for (node::Lookup& look : wanted) {
          if (Clock::now() >= until) return;
          look.addresses = addresses_of(look.name);
          look.answered = true;
          const std::lock_guard lock(shared->mutex);
          shared->done.push_back(std::move(look));
          shared->more.notify_all();
        }
      } catch (const std::exception&) {  // out of memory: the rest counts as unanswered
      }
    }).detach();
  } catch (const std::system_error&) {
    return;
  }
  std::unique_lock lock(shared->mutex);
  shared->more.wait_for(lock, within, [&] { return shared->done.size() == lookups.size(); });
  std::ranges::copy(shared->done, lookups.begin());
}

}  // namespace dtrain::host
