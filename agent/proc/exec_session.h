// ExecSession: `dtrainctl exec`: a command beside a task, in its cgroup, directory and environment, as its
// user. ExecSessions keeps those of all connections and speaks wire::ExecOutput and wire::ExecInput.
//
// With a terminal the command gets a pseudo terminal as its controlling one, in a session of its own;
// otherwise pipes (and still a session of its own, so that signals reach all of it). When the command ends,
// what it left running in its session is killed, then the rest of its output and its exit are sent (last =
// true). When the connection or the request is closed the session gets SIGHUP, and SIGKILL after kExecGrace.
// Nothing that exec started outlives it.
//
// A command of another task of the job (docs/launching.md) is started by the task's shim instead, as a child of its own: it may leave
// processes behind, which are a part of the task, and end with that.
//
// SIGPIPE must be ignored in this process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/account/host_user.h"
#include "agent/base/epoll.h"
#include "agent/proc/outlet.h"
#include "agent/proc/runner.h"
#include "common/base/time.h"
#include "common/node/event.h"

namespace dtrain::proc {

inline constexpr std::size_t kExecInputBytes = 4 << 20;  // unread input of the command; beyond, the command is ended
inline constexpr Duration kExecGrace = 2s;               // from SIGHUP to SIGKILL

// Where and as what the command runs; filled in by the daemon from the task's ShimSpec.
struct ExecPlace {
  task::User user;
  std::string work_dir;
  std::map<std::string, std::string> env;  // the task's; TERM is added with a terminal
  std::vector<std::string> cgroups;        // directories to join (v2, v1 memory); "" and missing ones are skipped
  // Set: the command becomes a part of the task, whose shim starts it in this way and says over the program's socket how it ended.
  std::function<Status(const Runner::Program&)> run_beside = {};
  int inside = 0;  // a process of the image in which the task runs, whose files the command sees; 0: the host's
};

// The running command. Owned and driven by ExecSessions.
class ExecSession {
 public:
  // A command that cannot be executed is reported only by turn().
  static Result<std::unique_ptr<ExecSession>> start(const wire::ExecRequest& request, const ExecPlace& place);
  ~ExecSession();  // kills what still runs
  ExecSession(const ExecSession&) = delete;
  ExecSession& operator=(const ExecSession&) = delete;

  int fd() const { return epoll_.fd(); }  // readable when turn() has work
  Status input(const wire::ExecInput& input);
  // Moves a bounded number of bytes in both directions. Returns true if it is over and the last message was sent.
  bool turn(Instant now, node::ConnectionId connection, std::uint64_t request, Outlet& outlet);
  void room_again();          // the outlet has room: watch the output again
  void hang_up(Instant now);  // SIGHUP now, SIGKILL at deadline()
  // After hang_up(): returns true when the command is gone.
  bool leave(Instant now);
  Instant deadline() const { return act_at_; }

 private:
  struct ChildEnds {
    UniqueFd input, output, errors;
  };
  ExecSession() = default;
  Status open_pipes(ChildEnds& ends);
  Status open_terminal(const wire::ExecRequest& request, const account::HostUser& user, ChildEnds& ends);
  Status launch(const wire::ExecRequest& request, const ExecPlace& place, const account::HostUser& user, const ChildEnds& ends);
  Status launch_in_task(const wire::ExecRequest& request, const ExecPlace& place, const ChildEnds& ends);
  bool ended_in_task();
  std::optional<Error> failure();
  void signal_all(int number);
  void watch(int fd, std::uint32_t events);
  void unwatch(UniqueFd& fd);  // closes it, too
  void write_input();
  void read_output(UniqueFd& from, bool is_stderr, node::ConnectionId connection, std::uint64_t request, Outlet& outlet);
  void set_paused(bool paused);
  void signal_session(int number, int group = 0);
  void reap_if_ended(Instant now);

  bool terminal_ = false;
  std::string command_;  // argv[0], for messages
  int pid_ = -1;         // also the number of its session and group; not to be used once reaped_
  Epoll epoll_;
  UniqueFd pidfd_, input_, output_, errors_;
  UniqueFd task_socket_;  // in place of pid_ and pidfd_: for signals, and the report of the task's shim
  std::optional<Error> task_failure_;
  UniqueFd launch_error_;  // how the child reports that it could not become the command
  std::string pending_;    // input not yet written
  bool input_ended_ = false;
  bool input_watched_ = false;
  bool paused_ = false;  // the connection has no room
  bool reaped_ = false;
  int status_ = 0;
  Instant act_at_ = kNever;  // when hung up: SIGKILL; when reaped: no more waiting for output
};

class ExecSessions {
 public:
  static Result<ExecSessions> open();

  // `query`: OpenExec::query. Failures are answered by dispatch().
  void open(node::ConnectionId connection, std::uint64_t request, const std::string& query, const ExecPlace& place);
  void input(Instant now, node::ConnectionId connection,
             const wire::ExecInput& input);  // an unknown exec: ignored (it ended)
  void close(Instant now, node::ConnectionId connection, std::uint64_t request);
  void close(Instant now, node::ConnectionId connection);
  void wake(node::ConnectionId connection);  // it has room again

  int fd() const { return epoll_.fd(); }
  Instant deadline() const;
  void dispatch(Instant now, Outlet& outlet);
  std::size_t size() const { return sessions_.size(); }

 private:
  using Key = std::pair<node::ConnectionId, std::uint64_t>;
  ExecSessions() = default;
  void fail_later(const Key& key, const Error& error);

  Epoll epoll_;
  WorkFlag work_;
  std::map<Key, std::unique_ptr<ExecSession>> sessions_;
  std::vector<std::unique_ptr<ExecSession>> leaving_;  // hung up; no client is left
  std::map<Key, Error> failed_;                        // to be answered at the next dispatch
};

}  // namespace dtrain::proc
