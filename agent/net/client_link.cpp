#include "agent/net/client_link.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "agent/base/boot_clock.h"
#include "agent/net/bridge.h"
#include "agent/net/ip_address.h"
#include "agent/net/peer_socket.h"
#include "agent/net/poller.h"
#include "agent/net/socket_events.h"
#include "common/wire/bridge.h"
#include "common/wire/key_file.h"

namespace dtrain::net {
namespace {

using Clock = std::chrono::steady_clock;
using Deadline = ClientLink::Deadline;

constexpr std::chrono::seconds kConnectTime{3};    // to one address
constexpr std::chrono::seconds kHandshakeTime{3};  // with one of the agents' keys
constexpr std::chrono::seconds kHelloTime{10};     // for the agent's loop to answer
constexpr int kClientSockets = 64;                 // three for each key that is tried; closed ones count until ZeroMQ has reaped them
constexpr int kLinkWatched = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_DISCONNECTED |
                             ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
constexpr const char* kNotThereNext =
    "see whether dtraind runs there, has a key file and names your key under access.keys; clients' port is the gossip port + 2";

std::string_view view(const CurveKey& key) { return {reinterpret_cast<const char*>(key.data()), key.size()}; }

int milliseconds_until(Deadline deadline) {
  constexpr std::int64_t kLongest = 3'600'000;
  if (deadline == Deadline::max()) return kLongest;
  const std::int64_t left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kLongest));
}

struct HostAndPort {
  std::string host, port;
};
HostAndPort split(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  HostAndPort parts{address.substr(0, colon), address.substr(colon + 1)};
  if (parts.host.starts_with('[') && parts.host.ends_with(']')) parts.host = parts.host.substr(1, parts.host.size() - 2);
  return parts;
}

// ---------------------------------------------------------------- addresses

struct Resolved {
  std::vector<std::string> addresses;  // as after tcp://
  std::string cause;
};

Resolved resolve(const HostAndPort& of) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  Resolved out;
  int code = ::getaddrinfo(of.host.c_str(), of.port.c_str(), &hints, &found);
  if (code == EAI_NONAME || code == EAI_ADDRFAMILY) {  // a host without any address but loopback
    hints.ai_flags = AI_NUMERICSERV;
    code = ::getaddrinfo(of.host.c_str(), of.port.c_str(), &hints, &found);
  }
  if (code != 0) {
    out.cause = ::gai_strerror(code);
    return out;
  }
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    char ip[NI_MAXHOST];
    if (::getnameinfo(each->ai_addr, each->ai_addrlen, ip, sizeof ip, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const std::string text = each->ai_family == AF_INET6 ? "[" + std::string(ip) + "]" : ip;
    out.addresses.push_back(text + ":" + of.port);
  }
  ::freeaddrinfo(found);
  if (out.addresses.empty()) out.cause = "it has no address";
  return out;
}

// A resolver that hangs is left behind, on a thread that ends with the program.
Resolved resolve_until(const HostAndPort& of, Deadline deadline) {
  std::packaged_task<Resolved()> task([of] { return resolve(of); });
  std::future<Resolved> answer = task.get_future();
  std::thread(std::move(task)).detach();
  const bool in_time = deadline == Deadline::max() ? (answer.wait(), true) : answer.wait_until(deadline) == std::future_status::ready;
  if (in_time) return answer.get();
  return {{}, "its address was not found in time"};
}

// "": somebody listens there; otherwise why not, which ZeroMQ does not report.
std::string probe(const std::string& address, Deadline deadline) {
  const HostAndPort at = split(address);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_NUMERICHOST;
  if (const int code = ::getaddrinfo(at.host.c_str(), at.port.c_str(), &hints, &found); code != 0) return ::gai_strerror(code);
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int cause = fd < 0 || ::connect(fd, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  if (fd < 0) cause = errno;
  ::freeaddrinfo(found);
  if (cause == EINPROGRESS) {
    pollfd waiting{fd, POLLOUT, 0};
    int ready;
    do ready = ::poll(&waiting, 1, milliseconds_until(deadline));
    while (ready < 0 && errno == EINTR);
    socklen_t size = sizeof cause;
    if (ready <= 0) cause = ETIMEDOUT;
    else if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &size) != 0) cause = errno;
  }
  if (fd >= 0) ::close(fd);
  return cause == 0 ? "" : ::strerror(cause);
}

// ---------------------------------------------------------------- the link

class ZmqClientLink final : public ClientLink {
 public:
  ZmqClientLink(std::string address, ZmqContext context, Poller poller, int mine, int theirs)
      : address_(std::move(address)),
        context_(std::move(context)),
        poller_(std::move(poller)),
        theirs_(theirs),
        bridge_(std::make_unique<Bridge>(mine, boot_now())) {}
  ~ZmqClientLink() override;

  enum class Handshake : unsigned char { done, unknown_key, failed, silent };
  Result<Handshake> connect(const std::string& to, const KeyPair& own, const CurveKey& agents, Deadline deadline);
  Status greet(Deadline deadline);
  Status start();

  bool can_stop() const { return static_cast<bool>(stop_); }  // false: errno
  int take_socket() override { return theirs_.release(); }
  std::string cause() const override {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  void disconnect();
  void wait(int milliseconds);
  bool was_lost();
  void carry();
  bool receive();
  void tell(const char* cause) {
    const std::lock_guard lock(mutex_);
    cause_ = cause;
  }

  const std::string address_;
  ZmqContext context_;
  Poller poller_;
  ZmqSocket socket_;
  std::optional<SocketEvents> events_;
  int connections_ = 0;
  UniqueFd theirs_;  // none: taken
  const WorkFlag stop_;
  std::unique_ptr<Bridge> bridge_;
  std::thread thread_;
  mutable std::mutex mutex_;
  std::string cause_;
};

ZmqClientLink::~ZmqClientLink() {
  theirs_.reset();
  if (thread_.joinable()) {
    stop_.raise();
    thread_.join();
  }
  disconnect();
}

void ZmqClientLink::disconnect() {
  if (!socket_) return;
  if (events_) {
    poller_.remove(events_->fd());
    events_->stop(socket_);
    events_.reset();
  }
  poller_.remove(socket_.fd());
  socket_.close();
}

void ZmqClientLink::wait(int milliseconds) {
  pollfd waiting{poller_.fd(), POLLIN, 0};
  ::poll(&waiting, 1, milliseconds);
}

Result<ZmqClientLink::Handshake> ZmqClientLink::connect(const std::string& to, const KeyPair& own, const CurveKey& agents,
                                                        Deadline deadline) {
  disconnect();
  const auto could_not = [&] { return fail(ErrorCode::internal, "could not reach agent " + address_ + ": " + zmq_cause()); };
  auto socket = ZmqSocket::open(context_, ZMQ_DEALER);
  if (!socket) return could_not();
  socket_ = std::move(*socket);
  const bool set = socket_.set(ZMQ_LINGER, static_cast<int>(kFarewell.count())) && socket_.set(ZMQ_MAXMSGSIZE, kBridgeFrameBytes) &&
                   socket_.set(ZMQ_HANDSHAKE_IVL, static_cast<int>(std::chrono::milliseconds(kHandshakeTime).count())) &&
                   socket_.set(ZMQ_TCP_MAXRT, kTcpMaxRetransmitMs) && socket_.set(ZMQ_RECONNECT_IVL, -1) && socket_.set(ZMQ_IMMEDIATE, 1) &&
                   (!to.starts_with('[') || socket_.set(ZMQ_IPV6, 1)) && socket_.set(ZMQ_CURVE_SERVERKEY, view(agents)) &&
                   socket_.set(ZMQ_CURVE_PUBLICKEY, view(own.public_key)) && socket_.set(ZMQ_CURVE_SECRETKEY, view(own.secret_key));
  if (!set) return could_not();
  auto events = SocketEvents::open(context_, socket_, "events-" + std::to_string(++connections_), kLinkWatched);
  if (!events) return could_not();
  events_.emplace(std::move(*events));
  auto added = poller_.add(socket_.fd(), EPOLLIN, {PollTag::Kind::dealer, 0});
  if (added) added = poller_.add(events_->fd(), EPOLLIN, {PollTag::Kind::dealer_monitor, 0});
  if (!added) return fail(added.error());
  if (!socket_.connect("tcp://" + to)) return could_not();
  for (;;) {
    while (const auto event = events_->next()) {
      if (event->what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return Handshake::done;
      if (event->what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return Handshake::unknown_key;
      return Handshake::failed;
    }
    (void)socket_.events();
    if (Clock::now() >= deadline) return Handshake::silent;
    wait(milliseconds_until(deadline));
  }
}

// The connection is gone; data that it brought before may still be there.
bool ZmqClientLink::was_lost() {
  bool lost = false;
  while (const auto event = events_->next()) lost = lost || event->what == ZMQ_EVENT_DISCONNECTED;
  return lost;
}

Status ZmqClientLink::greet(Deadline deadline) {
  const auto could_not = [&](const std::string& cause, const std::string& next) {
    return fail(ErrorCode::unavailable, "could not reach agent " + address_ + ": " + cause, next);
  };
  const std::string hello = wire::encode_bridge({wire::BridgeWord::hello, "", wire::kBridgeVersion});
  for (bool said = false, lost = false;;) {
    if (!said) said = socket_.send(hello, false) == ZmqSocket::Sent::done;
    lost = lost || was_lost();
    Frame frame;
    if (socket_.receive(frame)) {
      const auto message = wire::decode_bridge(frame.bytes());
      if (message && message->word == wire::BridgeWord::hello && message->count == wire::kBridgeVersion) return {};
      return could_not("it speaks another version", "use a dtrainctl of the agent's version");
    }
    if (lost) return could_not("it closed the connection", "see its log, or try again");
    if (Clock::now() >= deadline) return could_not("it did not answer in time", "try again, or give it longer with --timeout");
    if ((socket_.events() & (ZMQ_POLLIN | (said ? 0 : ZMQ_POLLOUT))) == 0) wait(milliseconds_until(deadline));
  }
}

Status ZmqClientLink::start() {
  auto added = poller_.add(bridge_->local(), kBridgeEdges, {PollTag::Kind::pipe, 0});
  if (added) added = poller_.add(stop_.fd(), EPOLLIN, {PollTag::Kind::stop, 0});
  if (!added) return added;
  // Signals are the program's business.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { carry(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

// Returns false if the agent broke the protocol.
bool ZmqClientLink::receive() {
  for (;;) {
    Frame frame;
    if (!socket_.receive(frame)) return true;
    const auto message = wire::decode_bridge(frame.bytes());
    if (frame.more() || !message || !bridge_->receive(boot_now(), *message)) return false;
  }
}

void ZmqClientLink::carry() {
  const auto send = [this](std::string_view message) { return socket_.send(message, false); };
  Instant last = kNever;  // set once the owner wants to stop
  for (;;) {
    const bool lost = was_lost();
    if (!receive()) {
      tell("the agent says what nobody understands");
      break;
    }
    const Bridge::State state = bridge_->pump(boot_now(), send);
    if (state == Bridge::State::ended || state == Bridge::State::closed) break;
    if (lost || state == Bridge::State::lost) {
      tell("the connection broke");
      break;
    }
    if (state == Bridge::State::silent) {
      tell("it does not answer any more");
      break;
    }
    if (boot_now() >= last) break;
    if ((socket_.events() & ZMQ_POLLIN) != 0) continue;
    const Duration left = std::min(bridge_->deadline(), last) - boot_now();
    wait(static_cast<int>(std::clamp<std::int64_t>((left + 999'999ns) / 1ms, 0, 3'600'000)));
    for (const PollTag& tag : poller_.ready()) {
      if (tag.kind != PollTag::Kind::stop || last != kNever) continue;
      poller_.remove(stop_.fd());
      last = boot_now() + kFarewell;
    }
  }
  if (last != kNever) send(Bridge::farewell());
  poller_.remove(bridge_->local());
  bridge_.reset();
}

}  // namespace

bool is_host_and_port(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size() || address.find('/') != std::string::npos) return false;
  return std::all_of(address.begin() + static_cast<std::ptrdiff_t>(colon) + 1, address.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<std::unique_ptr<ClientLink>> ClientLink::open(const std::string& address, const ClientKeys& keys, Deadline deadline) {
  const auto could_not = [&](ErrorCode code, const std::string& cause, const std::string& next) {
    return fail(code, "could not reach agent " + address + ": " + cause, next);
  };
  if (::sodium_init() < 0) return could_not(ErrorCode::internal, "cryptography could not be set up", "");
  const Resolved resolved = resolve_until(split(address), deadline);
  if (resolved.addresses.empty())
    return could_not(ErrorCode::unavailable, resolved.cause, "see how the host is called, or give its address");
  std::string reached, cause;
  for (const std::string& each : resolved.addresses) {
    cause = probe(each, std::min(deadline, Clock::now() + kConnectTime));
    if (cause.empty()) {
      reached = each;
      break;
    }
  }
  if (reached.empty()) return could_not(ErrorCode::unavailable, cause, kNotThereNext);

  auto context = ZmqContext::open(1, kClientSockets);
  if (!context) return fail(context.error());
  auto poller = Poller::open();
  if (!poller) return fail(poller.error());
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
    return could_not(ErrorCode::io, ::strerror(errno), "");
  auto link = std::make_unique<ZmqClientLink>(address, std::move(*context), std::move(*poller), pair[0], pair[1]);
  if (!link->can_stop()) return could_not(ErrorCode::io, ::strerror(errno), "");
  auto handshake = ZmqClientLink::Handshake::failed;
  for (const CurveKey& agents : keys.agents) {
    const auto done = link->connect(reached, keys.own, agents, std::min(deadline, Clock::now() + kHandshakeTime));
    if (!done) return fail(done.error());
    handshake = *done;
    if (handshake != ZmqClientLink::Handshake::failed) break;
  }
  switch (handshake) {
    case ZmqClientLink::Handshake::done: break;
    case ZmqClientLink::Handshake::unknown_key:
      return could_not(ErrorCode::refused, "it does not know your key",
                       "ask an administrator for the line `" + wire::key_text(keys.own.public_key) +
                           ": YOUR_NAME` under access.keys in dtraind.yaml there");
    case ZmqClientLink::Handshake::failed:
      return could_not(ErrorCode::unavailable, "who answers there serves with no key of your key file",
                       "give the port for clients (gossip + 2); if the cluster has a new key, have an administrator renew your file "
                       "(dtrainctl keygen --client --add)");
    case ZmqClientLink::Handshake::silent:
      return could_not(ErrorCode::unavailable, "who listens there does not answer",
                       "give the port for clients (gossip + 2), and see whether it is dtraind");
  }
  if (auto greeted = link->greet(std::min(deadline, Clock::now() + kHelloTime)); !greeted) return fail(greeted.error());
  if (auto started = link->start(); !started) return fail(started.error());
  return link;
}

}  // namespace dtrain::net
