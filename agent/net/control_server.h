// The control socket: a Unix stream socket on which dtrainctl talks to the agent (frames: common/wire/control.h).
//
// Everybody on the host may connect (mode 0666); the kernel says who it is (SO_PEERCRED), and Node decides what they
// may do. Hostile input costs only the sender its connection: lengths, unfinished messages, unread replies and the
// number of connections are limited, and descriptors that come along are neither taken nor dropped here
// (last_close.h). No call blocks, except for a user name that is not cached (user_names.h).
//
// fd() is an epoll descriptor over everything that the server waits for; it is readable when dispatch() has work.
// dispatch() must also be called at deadline().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/base/epoll.h"
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
  std::size_t connections_of_tasks = limits::kControlConnectionsOfTasks;
  std::size_t connections_of_root = limits::kControlConnectionsOfRoot;
  std::size_t output_bytes = limits::kControlOutputBytes;  // unsent bytes of one connection
  std::size_t total_output_bytes = 64 << 20;               // unsent bytes of all; a connection that would exceed it is closed
  // bytes of unfinished messages of all; a connection that would exceed it is closed
  std::size_t total_input_bytes = 64 << 20;
  Duration message_idle = 30s;             // an unfinished message without progress
  Duration linger = 5s;                    // for the last reply on a connection that is being closed
  Duration shut = 1s;                      // how long newcomers wait when no descriptor is left to refuse them with
  bool kernel_refuses_descriptors = true;  // if the kernel can; false in tests, as on a kernel that cannot (last_close.h)
};

class ControlSink {
 public:
  virtual ~ControlSink() = default;
  virtual node::ConnectionId next_connection() = 0;  // the number of the next one, which no other kind of connection has
  virtual void on_opened(node::ConnectionId connection, const node::Caller& caller) = 0;
  virtual void on_message(node::ConnectionId connection, wire::Message message) = 0;
  // Once for each opened connection, whoever ended it.
  virtual void on_closed(node::ConnectionId connection) = 0;
  // Output that had to wait was sent: there is room again.
  virtual void on_drained(node::ConnectionId connection) = 0;
};

class ControlServer {
 public:
  // The task that a process belongs to, nullopt: none; or why it is turned away before it is read.
  using TaskOf = std::function<Result<std::optional<AssignmentId>>(pid_t)>;
  // Replaces the socket that a dead agent left. ErrorCode::unavailable: a living agent answers there. `task_of` unset: nobody is a task's.
  static Result<std::unique_ptr<ControlServer>> listen(const std::string& path, const ControlLimits& limits = {}, TaskOf task_of = {});
  // Closes every connection and removes the socket.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  int fd() const { return epoll_.fd(); }
  Instant deadline() const;
  void dispatch(Instant now, ControlSink& sink);
  // Serves a non-blocking stream socket that somebody else accepted as that caller's connection; takes ownership of it.
  void adopt(int fd, const node::Caller& caller, ControlSink& sink);

  // Sends at once what the socket takes and keeps the rest. For a connection that is gone, does nothing.
  void send(node::ConnectionId connection, const wire::Message& message);
  // As send(), of an encoded wire::Message.
  void send_encoded(node::ConnectionId connection, std::string_view body);
  // Bytes for which the connection's queue has room; 0 when the connection is gone.
  std::size_t room(node::ConnectionId connection) const;
  // Closes the connection once earlier messages are delivered, after `linger` at the latest.
  void close(node::ConnectionId connection);
  // No further messages of this connection until resume(); its bytes stay in the kernel.
  void pause(node::ConnectionId connection);
  void resume(node::ConnectionId connection);

  std::size_t connections() const { return connections_.size(); }
  bool flushed() const { return total_output_ == 0; }  // nothing waits to be sent

 private:
  struct Connection;
  ControlServer(std::string path, const ControlLimits& limits, TaskOf task_of, int listen_fd, Epoll epoll, LastClose last_close);
  void accept_some(ControlSink& sink);
  bool is_full(int fd, std::uint32_t uid, bool of_task) const;
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
  const TaskOf task_of_;
  const int listen_fd_;
  Epoll epoll_;
  LastClose last_close_;         // outlives the connections
  UniqueFd spare_;               // closed for a moment when descriptors run out, so that a connection can be refused; none: lost
  Instant shut_until_ = kNever;  // the listener is not watched until then; kNever: it is watched
  UserNames names_{look_up_user};
  Instant now_{};
  std::size_t total_input_ = 0, total_output_ = 0;
  std::map<node::ConnectionId, std::unique_ptr<Connection>> connections_;
  std::map<std::uint32_t, std::size_t> of_user_, of_tasks_;  // how many of them, by uid: of the user, and of the user's tasks; no zeros
  std::set<node::ConnectionId> backlog_;                     // connections with complete messages in their input buffer
  std::set<node::ConnectionId> doomed_;                      // to be closed by the next bury()
  std::set<node::ConnectionId> drained_;
  std::set<std::pair<Instant, node::ConnectionId>> timers_;
};

}  // namespace dtrain::net
