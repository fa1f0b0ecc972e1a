#include "agent/dtrainctl/client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrain::ctl {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;   // of one read
constexpr std::size_t kReadPerTurn = 1 << 20;  // in one transfer(): a flood of output must leave the caller its turn

tl::unexpected<Failure> lost(const std::string& cause) {
  Failure f(Error{ErrorCode::unavailable, "could not talk to the agent: " + cause, "see whether dtraind runs"});
  f.lost = true;
  return tl::unexpected<Failure>(std::move(f));
}

void set_send_timeout(int fd, Deadline deadline) {
  timeval tv{};  // zero: no limit
  if (deadline != kNoDeadline) {
    const auto left = std::max<std::int64_t>(1000, std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now()).count());
    tv.tv_sec = static_cast<time_t>(left / 1'000'000);
    tv.tv_usec = static_cast<suseconds_t>(left % 1'000'000);
  }
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
}

}  // namespace

Failure no_answer() {
  Failure f(Error{ErrorCode::unavailable, "could not get an answer from the agent: none came in time",
                  "try again, or give it longer with --timeout"});
  f.late = true;
  return f;
}

int poll_timeout(Deadline deadline) {
  if (deadline == kNoDeadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 24 * 3600 * 1000));
}

Outcome<Connection> Connection::open(const AgentAddress& agent, Deadline deadline) {
  return net::is_host_and_port(agent.at) ? open_remote(agent, deadline) : open_local(agent.at, deadline);
}

Outcome<Connection> Connection::open_remote(const AgentAddress& agent, Deadline deadline) {
  if (agent.key_file.empty())
    return failed(ErrorCode::invalid, "could not reach agent " + agent.at + ": no key to show there",
                  "give your client key with --key-file or DTRAIN_KEY_FILE; an administrator makes one with dtrainctl keygen --client");
  const auto keys = net::read_client_key_file(agent.key_file);
  if (!keys) return failed(Failure(keys.error()));
  auto link = net::ClientLink::open(agent.at, *keys, deadline);
  if (!link) {
    Failure f(link.error());
    f.lost = link.error().code == ErrorCode::unavailable;
    return failed(std::move(f));
  }
  Connection connection(UniqueFd((*link)->take_socket()));
  connection.link_ = std::move(*link);
  return connection;
}

Outcome<Connection> Connection::open_local(const std::string& address, Deadline deadline) {
  UniqueFd directory;  // must stay open until connect() has resolved the path below
  std::string path = address;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof name.sun_path) {
    // Too long for a socket address: named through its directory's descriptor.
    const std::size_t slash = path.rfind('/');
    directory = UniqueFd(::open(path.substr(0, slash).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    path = "/proc/self/fd/" + std::to_string(directory.get()) + path.substr(slash);
  }
  if (path.empty() || path.size() >= sizeof name.sun_path)
    return failed(ErrorCode::invalid, "could not reach agent " + address + ": no such kind of address",
                  "give the path of the agent's control.sock with --agent");
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int cause = fd ? 0 : errno;
  if (fd) {
    // A full backlog makes connect() wait, for at most this time.
    set_send_timeout(fd.get(), deadline);
    int done;
    do done = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name);
    while (done < 0 && errno == EINTR);
    if (done < 0) cause = errno;
  }
  if (cause != 0) {
    Failure f(Error{
        ErrorCode::unavailable,
        "could not reach the agent at " + address + ": " + (cause == EAGAIN ? "it accepts no connection" : std::strerror(cause)),
        cause == EACCES ? "ask for access to that socket" : "start dtraind, or name its control socket with --agent or DTRAIN_AGENT"});
    f.lost = true;
    return failed(std::move(f));
  }
  const int flags = ::fcntl(fd.get(), F_GETFL);
  ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK);
  return Connection(std::move(fd));
}

void Connection::enqueue(const wire::Message& message) { out_ += wire::frame(message); }

pollfd Connection::poll_request() const { return {fd_.get(), static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT), 0}; }

void Connection::transfer() {
  while (!out_.empty()) {
    const ssize_t n = ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) {
      out_.clear();  // the agent may have said why before it closed, which is yet to be read
      break;
    }
    out_.erase(0, static_cast<std::size_t>(n));
  }
  char buffer[kReadBytes];
  for (std::size_t had = 0; had < kReadPerTurn && !ended_;) {
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      ended_ = true;
      break;
    }
    in_.feed({buffer, static_cast<std::size_t>(n)});
    had += static_cast<std::size_t>(n);
  }
}

Outcome<std::optional<wire::Message>> Connection::next() {
  auto message = in_.next();
  if (!message) return lost(message.error().text());
  if (!*message && ended_) {
    const std::string cause = link_ ? link_->cause() : "";
    return lost(cause.empty() ? "it closed the connection" : cause);
  }
  return std::move(*message);
}

Outcome<std::optional<wire::Message>> Connection::receive(Deadline deadline) {
  while (true) {
    auto message = next();
    if (!message || *message) return message;
    pollfd p = poll_request();
    const int ready = ::poll(&p, 1, poll_timeout(deadline));
    if (ready < 0 && errno != EINTR) return lost(std::strerror(errno));
    if (ready == 0 && Clock::now() >= deadline) return std::optional<wire::Message>{};
    if (ready > 0) transfer();
  }
}

Outcome<wire::Message> Connection::reply_to(std::uint64_t number, Deadline deadline) {
  while (true) {
    auto message = receive(deadline);
    if (!message) return failed(message.error());
    if (!*message) return failed(no_answer());
    if ((*message)->request == number || (*message)->request == 0) return std::move(**message);
  }
}

Outcome<void> Connection::check(const wire::Message& message, wire::MessageType expected) {
  if (message.type == expected) return {};
  if (message.type == wire::MessageType::error) {
    auto reply = wire::decode<wire::ErrorReply>(message.payload);
    if (reply && !reply->errors.empty()) {
      Failure f;
      f.items = std::move(reply->errors);
      return failed(std::move(f));
    }
  }
  return failed(ErrorCode::unavailable, "could not understand the agent: it answered with another kind of message",
                "use a dtrainctl of the agent's version");
}

}  // namespace dtrain::ctl
