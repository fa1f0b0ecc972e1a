// One connection to an agent, at its control socket or from another machine: sends numbered requests and reads
// replies. Single-threaded.
//
// Blocking use: call(). Streams: send() a request, then receive() until a message with `last` arrives. With the
// caller's own event loop: poll on poll_request(), then transfer(), then next() until it returns nullopt.
//
// Every failure that leaves the connection unusable has Failure::lost set and code unavailable.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "agent/base/unique_fd.h"
#include "agent/dtrainctl/failure.h"
#include "agent/net/client_link.h"
#include "common/wire/control.h"

namespace dtrain::ctl {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

// Milliseconds for poll(): -1 never, rounded up so that a wait never ends before the deadline.
int poll_timeout(Deadline deadline);

// The error when no reply came before a deadline.
Failure no_answer();

// The address of an agent.
struct AgentAddress {
  std::string at;        // the path of a Unix stream socket, or HOST:PORT of its door for clients
  std::string key_file;  // of the client; for HOST:PORT only
};

class Connection {
 public:
  // Fails at the deadline at the latest.
  static Outcome<Connection> open(const AgentAddress& agent, Deadline deadline);

  // Queues a request and returns its number. The bytes leave with transfer(), receive() or call().
  template <class T>
  std::uint64_t send(wire::MessageType type, const T& payload) {
    enqueue(wire::make_message(type, ++requests_, payload));
    return requests_;
  }
  // Queues a message that is no request (exec_input, cancel_request): it has number 0 and gets no reply.
  template <class T>
  void tell(wire::MessageType type, const T& payload) {
    enqueue(wire::make_message(type, 0, payload));
  }

  // One request with one reply. The connection must have no other request open.
  template <class Reply, class Request>
  Outcome<Reply> call(wire::MessageType type, const Request& request, wire::MessageType expected, Deadline deadline) {
    const std::uint64_t number = send(type, request);
    auto message = reply_to(number, deadline);
    if (!message) return failed(message.error());
    return read<Reply>(*message, expected);
  }

  // The next message; nullopt when the deadline passed first.
  Outcome<std::optional<wire::Message>> receive(Deadline deadline);
  // Sends and reads as much as possible without waiting.
  void transfer();
  // The next message among those already read.
  Outcome<std::optional<wire::Message>> next();
  pollfd poll_request() const;
  std::size_t unsent() const { return out_.size(); }

  // The payload of a reply: the error of an error reply, a failure for a reply of another type.
  template <class Reply>
  static Outcome<Reply> read(const wire::Message& message, wire::MessageType expected) {
    if (auto wrong = check(message, expected); !wrong) return failed(wrong.error());
    auto decoded = wire::decode<Reply>(message.payload);
    if (!decoded) return failed(Failure(decoded.error()));
    return std::move(*decoded);
  }

 private:
  explicit Connection(UniqueFd fd) : fd_(std::move(fd)) {}
  static Outcome<Connection> open_local(const std::string& path, Deadline deadline);
  static Outcome<Connection> open_remote(const AgentAddress& agent, Deadline deadline);
  void enqueue(const wire::Message& message);
  Outcome<wire::Message> reply_to(std::uint64_t number, Deadline deadline);
  static Outcome<void> check(const wire::Message& message, wire::MessageType expected);

  std::unique_ptr<net::ClientLink> link_;  // to another machine: fd_ is its socket; ended after fd_ is closed
  UniqueFd fd_;
  std::string out_;
  wire::Deframer in_;
  bool ended_ = false;  // the agent closed its side; messages that were read before are still returned
  std::uint64_t requests_ = 0;
};

}  // namespace dtrain::ctl
