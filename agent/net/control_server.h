// The control socket: a Unix stream socket on which dtrainctl talks to the agent (frames: common/wire/control.h).
//
// Everybody on the host may connect (mode 0666); who it is says the kernel (SO_PEERCRED), what they may do decides
// Node. Hostile input costs the sender its connection and nobody else anything: lengths, unfinished messages, unread
// replies and the number of connections are all limited, and descriptors that come along are neither taken nor dropped
// here (last_close.h). No call blocks, but for the name of a user that is not remembered (user_names.h).
//
// fd() is an epoll descriptor over everything this waits for; it is readable when dispatch() has work. dispatch() must
// also be called at deadline().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/net/last_close.h"
#include "agent/net/user_names.h"
#include "common/base/limits.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/node/event.h"
#include "common/wire/control.h"

namespace dtrain::net {

struct ControlLimits {
  std::size_t connections = limits::kControlConnections;
  std::size_t connections_of_user = limits::kControlConnectionsOfUser;
  std::size_t connections_of_root = limits::kControlConnectionsOfRoot;
  std::size_t output_bytes = limits::kControlOutputBytes;  // unsent, of one connection
  std::size_t total_output_bytes = 64 << 20;               // unsent, of all: who would exceed it is closed
  std::size_t total_input_bytes = 64 << 20;                // of unfinished messages of all: likewise
  Duration message_idle = 30s;                             // an unfinished message without progress
  Duration linger = 5s;                                    // for the last reply to a connection being closed
  Duration shut = 1s;                                      // newcomers wait so long when no descriptor is left to refuse with
  bool kernel_refuses_descriptors = true;                  // where it can; false, in tests: as on a kernel that cannot (last_close.h)
};

class ControlSink {
 public:
  virtual ~ControlSink() = default;
  virtual void on_opened(node::ConnectionId connection, const node::Caller& caller) = 0;
  virtual void on_message(node::ConnectionId connection, wire::Message message) = 0;
  // Once for each opened connection, whoever ended it.
  virtual void on_closed(node::ConnectionId connection) = 0;
  // Output that had to wait was sent: there is room again.
  virtual void on_drained(node::ConnectionId connection) = 0;
};

class ControlServer {
 public:
  // Replaces the socket that a dead agent left. ErrorCode::unavailable: a living one answers there.
  // `unwelcome`: processes that are turned away, with a word, before anything of theirs is read; unset: none.
  static Result<std::unique_ptr<ControlServer>> listen(const std::string& path, const ControlLimits& limits = {},
                                                       std::function<bool(pid_t)> unwelcome = {});
  // Closes every connection and removes the socket.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  int fd() const { return epoll_fd_; }
  Instant deadline() const;
  void dispatch(Instant now, ControlSink& sink);
  // Serves a stream socket that somebody else accepted, non-blocking, like one of its own, as that caller's; owns it.
  void adopt(int fd, const node::Caller& caller, ControlSink& sink);

  // Sends at once what the socket takes, keeps the rest. A connection that is gone swallows it.
  void send(node::ConnectionId connection, const wire::Message& message);
  // As send(), of an encoded wire::Message.
  void send_encoded(node::ConnectionId connection, std::string_view body);
  // Bytes that the connection's queue still takes; 0 when it is gone.
  std::size_t room(node::ConnectionId connection) const;
  // Closes once what was sent before is delivered, at the latest after `linger`.
  void close(node::ConnectionId connection);
  // No further messages of this connection until resume(); what it sends stays in the kernel.
  void pause(node::ConnectionId connection);
  void resume(node::ConnectionId connection);

  std::size_t connections() const { return connections_.size(); }
  bool flushed() const { return total_output_ == 0; }  // nothing waits to be sent

 private:
  struct Connection;
  ControlServer(std::string path, const ControlLimits& limits, std::function<bool(pid_t)> unwelcome, int listen_fd, int epoll_fd,
                LastClose last_close);
  void accept_some(ControlSink& sink);
  bool is_full(int fd, std::uint32_t uid) const;
  void admit(std::unique_ptr<Connection> connection, const node::Caller& caller, ControlSink& sink);
  void refuse_one();
  void watch_listener(bool on);
  void shut();
  void reopen();
  void read_some(Connection& c, ControlSink& sink);
  void deliver(Connection& c, ControlSink& sink);
  void write_some(Connection& c);
  void reject(Connection& c, const Error& error);
  void update_interest(Connection& c);
  void account_input(Connection& c);
  void doom(Connection& c);
  void expire();
  void bury(ControlSink& sink);
  Connection* find(node::ConnectionId id) const;

  const std::string path_;
  const ControlLimits limits_;
  const std::function<bool(pid_t)> unwelcome_;
  const int listen_fd_;
  const int epoll_fd_;
  LastClose last_close_;  // outlives the connections
  int spare_fd_;  // given up for a moment when descriptors run out, so that a connection can be refused; -1: lost
  Instant shut_until_ = kNever;  // the listener is not watched until then; kNever: it is
  UserNames names_{look_up_user};
  Instant now_{};
  node::ConnectionId next_id_ = 1;
  std::size_t total_input_ = 0, total_output_ = 0;
  std::map<node::ConnectionId, std::unique_ptr<Connection>> connections_;
  std::map<std::uint32_t, std::size_t> of_user_;  // how many of them, by uid; no zeros
  std::set<node::ConnectionId> backlog_;  // complete messages wait in their input buffer
  std::set<node::ConnectionId> doomed_;   // to be closed by the next bury()
  std::set<node::ConnectionId> drained_;
  std::set<std::pair<Instant, node::ConnectionId>> timers_;
};

}  // namespace dtrain::net
