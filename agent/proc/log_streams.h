// LogStreams: every open `dtrainctl logs` of this agent. Sends wire::LogChunk messages while the connection
// has room, and follows growing files by inotify (one instance for all streams, opened with the first that
// follows; nothing is polled). A stream ends with an empty LogChunk or an ErrorReply, last = true.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "agent/base/epoll.h"
#include "agent/proc/log_stream.h"
#include "common/node/effect.h"

namespace dtrain::proc {

class LogStreams {
 public:
  // `tasks_dir`: where the assignment directories lie, as in RunnerOptions.
  static Result<LogStreams> open(std::string tasks_dir);

  // A query that does not decode, or more than limits::kStreams streams, is answered with an error by
  // dispatch().
  void open(const node::OpenLog& effect);
  void update(const node::UpdateLog& effect);                        // unknown streams: ignored (they ended)
  void close(node::ConnectionId connection, std::uint64_t request);  // cancelled: nothing more is sent
  void close(node::ConnectionId connection);                         // gone
  // The connection has room again.
  void wake(node::ConnectionId connection);

  // Readable when dispatch() has work.
  int fd() const { return epoll_.fd(); }
  // Sends what there is, a bounded amount of each stream.
  void dispatch(Outlet& outlet);
  std::size_t size() const { return streams_.size(); }

 private:
  using Key = std::pair<node::ConnectionId, std::uint64_t>;
  struct Watched {
    int descriptor = -1;  // -1: the directory does not exist (yet)
    AssignmentId id;
    std::set<Key> streams;
  };

  explicit LogStreams(std::string tasks_dir) : tasks_dir_(std::move(tasks_dir)) {}
  Status ensure_inotify();
  Status follow(const Key& key, const LogStream& stream);
  void unfollow(const Key& key);
  void watch_directory(const std::string& name, Watched& watched);
  void read_inotify();
  void forget(const Key& key);
  void run_stream(const Key& key, Outlet& outlet);
  void fail_stream(const Key& key, const Error& error, Outlet& outlet);
  void set_work();

  std::string tasks_dir_;
  Epoll epoll_;
  WorkFlag work_;
  UniqueFd inotify_;
  std::map<Key, LogStream> streams_;
  std::map<Key, Error> failed_;             // to be answered at the next dispatch
  std::set<Key> runnable_;                  // have work
  std::set<Key> full_;                      // wait for room in their connection
  std::map<std::string, Watched> watched_;  // by name of the assignment directory
  std::map<int, std::string> names_;        // watch descriptor -> name
};

}  // namespace dtrain::proc
