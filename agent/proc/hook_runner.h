// Runs the notify commands of jobs: as the job's user, in / with the given environment only, stdin and stdout
// /dev/null, the end of stderr kept, no other descriptors, a time limit on it. Each has a session of its own; what it leaves in its
// process group is killed when it has ended. At most kHooksAtOnce run at a time; the others wait in order.
// The host's own prolog and epilog, too: without a user it is the agent's own.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "agent/proc/runner.h"
#include "common/base/result.h"
#include "common/node/effect.h"

namespace dtrain::proc {

inline constexpr std::size_t kHooksAtOnce = 8;
inline constexpr std::size_t kHooksWaiting = 1024;  // a further one ends at once with a cause

class HookRunner {
 public:
  static Result<std::unique_ptr<HookRunner>> open(Duration time_limit = 60s);
  // Kills what runs: a hook belongs to the agent that started it, and dies with one that is killed, too.
  ~HookRunner();
  HookRunner(const HookRunner&) = delete;
  HookRunner& operator=(const HookRunner&) = delete;

  void run(Instant now, node::RunHook effect);  // -> HookEnded
  int fd() const { return epoll_fd_; }
  Instant deadline() const;
  void dispatch(Instant now, EventSink& sink);

 private:
  struct Hook;
  HookRunner(int epoll_fd, Duration time_limit);
  void start_waiting(Instant now);
  void start(Instant now, const node::RunHook& effect);
  void refuse(std::uint64_t token, const std::string& cause);
  void read_errors(Hook& hook);
  void reap(Hook& hook);

  int epoll_fd_;
  Duration time_limit_;
  std::deque<node::RunHook> waiting_;
  std::map<std::uint64_t, std::unique_ptr<Hook>> running_;  // by token
  std::deque<node::HookEnded> ended_;
};

}  // namespace dtrain::proc
