#include "agent/net/control_server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/net/control_socket.h"
#include "common/base/check.h"

namespace dtrain::net {
namespace {

constexpr int kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 32;
constexpr int kMessagesPerTurn = 64;  // of one connection
constexpr std::size_t kReadChunk = 64 << 10;
constexpr std::size_t kReadPerTurn = 512 << 10;  // of one connection
constexpr std::size_t kKeptBuffer = 4 << 10;     // an idle connection keeps no more memory than this
constexpr std::uint64_t kListenerId = 0;

// What does not fit into the socket is dropped.
void turn_away(int fd, const Error& error) {
  const std::string reply = wire::frame(wire::make_message(wire::MessageType::error, 0, wire::error_reply(error)));
  (void)::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

struct ControlServer::Connection {
  explicit Connection(int socket, LastClose& closer) : fd(socket), last_close(closer) {}
  node::ConnectionId id = 0;
  const int fd;
  LastClose& last_close;
  std::uint32_t uid = 0;
  bool of_task = false;
  wire::Deframer input;
  std::size_t counted_input = 0;  // part of total_input_
  std::size_t largest_input = 0;  // since the buffer was last given back
  std::string output;
  std::size_t sent = 0;  // part of output that was sent
  std::uint32_t interest = 0;
  bool paused = false;
  bool closing = false;    // reads nothing any more, and closes when output is empty
  Instant timer = kNever;  // for an unfinished message, or for linger

  ~Connection() { last_close.close(fd); }
  std::size_t unsent() const { return output.size() - sent; }
};

Result<std::unique_ptr<ControlServer>> ControlServer::listen(const std::string& path, const ControlLimits& limits, TaskOf task_of) {
  const auto listening = listen_unix(path, limits.kernel_refuses_descriptors);
  if (!listening) return fail(listening.error());
  UniqueFd listener(*listening);
  auto last_close = LastClose::of(listener.get());
  if (!last_close) return fail(last_close.error());
  Epoll epoll;
  if (!epoll || !epoll.add(listener.get(), kListenerId))
    return fail(ErrorCode::io, "could not watch control socket " + path + ": " + ::strerror(errno));
  return std::unique_ptr<ControlServer>(
      new ControlServer(path, limits, std::move(task_of), listener.release(), std::move(epoll), std::move(*last_close)));
}

ControlServer::ControlServer(std::string path, const ControlLimits& limits, TaskOf task_of, int listen_fd, Epoll epoll,
                             LastClose last_close)
    : path_(std::move(path)),
      limits_(limits),
      task_of_(std::move(task_of)),
      listen_fd_(listen_fd),
      epoll_(std::move(epoll)),
      last_close_(std::move(last_close)),
      spare_(open_spare()) {}

ControlServer::~ControlServer() {
  ::unlink(path_.c_str());
  connections_.clear();
  last_close_.close_listener(listen_fd_);
}

ControlServer::Connection* ControlServer::find(node::ConnectionId id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() || doomed_.contains(id) ? nullptr : found->second.get();
}

Instant ControlServer::deadline() const {
  if (!backlog_.empty() || !doomed_.empty() || !drained_.empty()) return Instant{};
  return std::min(shut_until_, timers_.empty() ? kNever : timers_.begin()->first);
}

void ControlServer::update_interest(Connection& c) {
  std::uint32_t wanted = 0;
  if (!c.paused && !c.closing) wanted |= EPOLLIN;
  if (c.unsent() > 0) wanted |= EPOLLOUT;
  if (wanted == c.interest) return;
  (void)epoll_.change(c.fd, c.id, wanted);
  c.interest = wanted;
}

void ControlServer::doom(Connection& c) { doomed_.insert(c.id); }

// ---------------------------------------------------------------- input

void ControlServer::accept_some(ControlSink& sink) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (last_close_.full()) return shut();
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const int cause = errno;
      if (cause == EMFILE || cause == ENFILE) refuse_one();
      if (cause == ENOMEM || cause == ENOBUFS) shut();
      return;
    }
    auto connection = std::make_unique<Connection>(fd, last_close_);
    last_close_.prepare(fd);
    const Peer peer = peer_of(fd);
    if (is_full(fd, peer.uid, false)) continue;
    node::Caller caller{names_.name_of(peer.uid, now_), peer.uid};
    if (task_of_) {
      auto task = task_of_(peer.pid);
      if (!task) turn_away(fd, task.error());
      if (!task || (*task && is_full(fd, peer.uid, true))) continue;
      caller.inside = std::move(*task);
    }
    admit(std::move(connection), caller, sink);
  }
}

// One user may have only a part of the connections, and all others together leave some to root.
bool ControlServer::is_full(int fd, std::uint32_t uid, bool of_task) const {
  const bool root = !of_task && (uid == 0 || uid == ::geteuid());
  const std::size_t room = limits_.connections - (root ? 0 : std::min(limits_.connections, limits_.connections_of_root));
  const auto& counts = of_task ? of_tasks_ : of_user_;
  const auto own = counts.find(uid);
  std::string open;
  if (connections_.size() >= room) open = std::to_string(connections_.size()) + " are open";
  else if (!root && own != counts.end() && own->second >= (of_task ? limits_.connections_of_tasks : limits_.connections_of_user))
    open = std::to_string(own->second) + (of_task ? " of your tasks are open" : " of yours are open");
  if (open.empty()) return false;
  turn_away(fd, {ErrorCode::limit, "could not serve this connection: " + open, "close some, or try again later"});
  return true;
}

void ControlServer::admit(std::unique_ptr<Connection> connection, const node::Caller& caller, ControlSink& sink) {
  const node::ConnectionId id = connection->id = sink.next_connection();
  connection->interest = EPOLLIN;
  if (!epoll_.add(connection->fd, id)) return;
  connection->uid = caller.uid;
  connection->of_task = caller.inside.has_value();
  ++(connection->of_task ? of_tasks_ : of_user_)[caller.uid];
  connections_.emplace(id, std::move(connection));
  sink.on_opened(id, caller);
}

void ControlServer::adopt(int fd, const node::Caller& caller, ControlSink& sink) {
  auto connection = std::make_unique<Connection>(fd, last_close_);
  if (!is_full(fd, caller.uid, false)) admit(std::move(connection), caller, sink);
}

// No descriptor is left: without this the waiting connection would keep the loop awake for ever.
void ControlServer::refuse_one() {
  if (!spare_) spare_ = open_spare();
  if (!spare_) return shut();
  spare_.reset();
  // Another thread may take the freed descriptor first: the spare is then lost until something is closed.
  const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) last_close_.close(fd);
  spare_ = open_spare();
}

void ControlServer::watch_listener(bool on) { (void)epoll_.change(listen_fd_, kListenerId, on ? static_cast<std::uint32_t>(EPOLLIN) : 0); }

// Connections can be neither accepted nor refused: new ones wait in the listener's queue.
void ControlServer::shut() {
  watch_listener(false);
  shut_until_ = now_ + limits_.shut;
}

void ControlServer::reopen() {
  if (!spare_) spare_ = open_spare();
  if (shut_until_ == kNever || (!spare_ && now_ < shut_until_)) return;
  watch_listener(true);
  shut_until_ = kNever;
}

void ControlServer::account_input(Connection& c) {
  total_input_ += c.input.buffered();
  total_input_ -= c.counted_input;
  c.counted_input = c.input.buffered();
  c.largest_input = std::max(c.largest_input, c.counted_input);
  if (c.counted_input == 0 && c.largest_input > kKeptBuffer) {
    c.input = wire::Deframer();
    c.largest_input = 0;
  }
  timers_.erase({c.timer, c.id});
  const bool unfinished = c.counted_input > 0 && !c.paused && !c.closing && !backlog_.contains(c.id);
  if (!c.closing) c.timer = unfinished ? now_ + limits_.message_idle : kNever;
  if (c.timer != kNever) timers_.insert({c.timer, c.id});
}

void ControlServer::read_some(Connection& c, ControlSink& sink) {
  char chunk[kReadChunk];
  for (std::size_t total = 0; total < kReadPerTurn && !c.paused && !c.closing;) {
    const ssize_t n = last_close_.receive(c.fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0 && errno == EPROTO)
      return reject(c, Error{ErrorCode::invalid, "could not read control message: descriptors came along", "send none"});
    if (n < 0) return doom(c);
    if (n == 0) {
      if (c.input.buffered() > 0 && !backlog_.contains(c.id))
        reject(c, Error{ErrorCode::invalid, "could not read control message: it ended in the middle",
                        "the sender is not a dtrainctl of this version"});
      else doom(c);
      return;
    }
    total += static_cast<std::size_t>(n);
    c.input.feed(std::string_view(chunk, static_cast<std::size_t>(n)));
    deliver(c, sink);
    if (doomed_.contains(c.id)) return;
    if (total_input_ > limits_.total_input_bytes)
      return reject(c, Error{ErrorCode::limit, "could not read control message: too many are unfinished", "try again later"});
    if (backlog_.contains(c.id)) return;
  }
}

// Delivers complete messages, a bounded number of them.
void ControlServer::deliver(Connection& c, ControlSink& sink) {
  backlog_.erase(c.id);
  for (int i = 0; !c.paused && !c.closing && !doomed_.contains(c.id); ++i) {
    if (i == kMessagesPerTurn) {
      backlog_.insert(c.id);
      break;
    }
    auto message = c.input.next();
    if (!message) {
      reject(c, message.error());
      break;
    }
    if (!*message) break;
    sink.on_message(c.id, std::move(**message));
  }
  account_input(c);
}

// The stream cannot be read any further: sends the reason, then closes.
void ControlServer::reject(Connection& c, const Error& error) {
  send(c.id, wire::make_message(wire::MessageType::error, 0, wire::error_reply(error)));
  close(c.id);
}

// ---------------------------------------------------------------- output

void ControlServer::send(node::ConnectionId connection, const wire::Message& message) { send_encoded(connection, wire::encode(message)); }

void ControlServer::send_encoded(node::ConnectionId connection, std::string_view body) {
  Connection* c = find(connection);
  if (!c || c->closing) return;
  if (body.size() > limits::kControlFrameBytes) {
    const Error large{ErrorCode::limit,
                      "could not send the answer: it has " + std::to_string(body.size()) + " bytes, above the limit of " +
                          std::to_string(limits::kControlFrameBytes),
                      "ask for less"};
    const auto asked = wire::decode<wire::Message>(body);
    return send(connection, wire::make_message(wire::MessageType::error, asked ? asked->request : 0, wire::error_reply(large)));
  }
  const std::size_t added = body.size() + 4;
  const bool was_empty = c->unsent() == 0;
  for (int shift = 0; shift < 32; shift += 8) c->output.push_back(static_cast<char>(body.size() >> shift));
  c->output.append(body);
  total_output_ += added;
  if (was_empty) write_some(*c);  // the usual case: it all fits into the socket
  if (c->unsent() > limits_.output_bytes || (total_output_ > limits_.total_output_bytes && c->unsent() > 0)) doom(*c);
}

void ControlServer::write_some(Connection& c) {
  while (c.unsent() > 0) {
    const ssize_t n = ::send(c.fd, c.output.data() + c.sent, c.unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) return doom(c);
    c.sent += static_cast<std::size_t>(n);
    total_output_ -= static_cast<std::size_t>(n);
  }
  if (c.unsent() == 0) {
    c.sent = 0;
    if (c.output.capacity() > kKeptBuffer) c.output = std::string();
    else c.output.clear();
    if (c.closing) return doom(c);
  } else if (c.sent > kReadPerTurn) {
    c.output.erase(0, c.sent);
    c.sent = 0;
  }
  update_interest(c);
}

std::size_t ControlServer::room(node::ConnectionId connection) const {
  const Connection* c = find(connection);
  if (!c || c->closing || c->unsent() >= limits_.output_bytes || total_output_ >= limits_.total_output_bytes) return 0;
  return std::min(limits_.output_bytes - c->unsent(), limits_.total_output_bytes - total_output_);
}

void ControlServer::close(node::ConnectionId connection) {
  Connection* c = find(connection);
  if (!c || c->closing) return;
  c->closing = true;
  backlog_.erase(c->id);
  if (c->unsent() == 0) return doom(*c);
  timers_.erase({c->timer, c->id});
  c->timer = now_ + limits_.linger;
  timers_.insert({c->timer, c->id});
  update_interest(*c);
}

void ControlServer::pause(node::ConnectionId connection) {
  Connection* c = find(connection);
  if (!c || c->paused) return;
  c->paused = true;
  update_interest(*c);
}

void ControlServer::resume(node::ConnectionId connection) {
  Connection* c = find(connection);
  if (!c || !c->paused) return;
  c->paused = false;
  if (c->input.buffered() > 0) backlog_.insert(c->id);
  update_interest(*c);
}

// ---------------------------------------------------------------- turns

void ControlServer::expire() {
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    const node::ConnectionId id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Connection* c = find(id);
    if (!c) continue;
    c->timer = kNever;
    if (c->closing) doom(*c);
    else reject(*c, Error{ErrorCode::invalid, "could not read control message: the rest of it did not arrive", "send whole messages"});
  }
}

void ControlServer::bury(ControlSink& sink) {
  while (!doomed_.empty()) {
    const node::ConnectionId id = *doomed_.begin();
    const auto found = connections_.find(id);
    CHECK(found != connections_.end());
    Connection& c = *found->second;
    total_input_ -= c.counted_input;
    total_output_ -= c.unsent();
    timers_.erase({c.timer, id});
    backlog_.erase(id);
    drained_.erase(id);
    auto& counts = c.of_task ? of_tasks_ : of_user_;
    if (const auto own = counts.find(c.uid); --own->second == 0) counts.erase(own);
    connections_.erase(found);
    doomed_.erase(id);
    if (!spare_) reopen();
    sink.on_closed(id);
  }
}

void ControlServer::dispatch(Instant now, ControlSink& sink) {
  now_ = now;
  last_close_.pass_on();
  if (shut_until_ <= now_) reopen();
  // Copied before reading: what this turn's reading leaves over belongs to the next turn.
  const std::set<node::ConnectionId> backlog = backlog_;
  for (const node::ConnectionId id : backlog)
    if (Connection* c = find(id)) deliver(*c, sink);
  epoll_event events[kEventsPerTurn];
  for (const epoll_event& event : epoll_.ready(events)) {
    if (event.data.u64 == kListenerId) {
      accept_some(sink);
      continue;
    }
    Connection* c = find(event.data.u64);
    if (!c) continue;
    if (event.events & EPOLLOUT) {
      write_some(*c);
      if (c->unsent() == 0 && !doomed_.contains(c->id)) drained_.insert(c->id);
    }
    if (doomed_.contains(c->id)) continue;
    const bool gone = event.events & (EPOLLHUP | EPOLLERR);
    if (gone && (c->paused || c->closing)) doom(*c);  // nothing of it will be read: otherwise the loop would spin on the hang-up
    else if ((event.events & EPOLLIN || gone) && !backlog_.contains(c->id)) read_some(*c, sink);
  }
  expire();
  for (const node::ConnectionId id : std::exchange(drained_, {})) sink.on_drained(id);
  bury(sink);
}

}  // namespace dtrain::net
