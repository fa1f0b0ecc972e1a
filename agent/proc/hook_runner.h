// Runs the notify commands of jobs: as the job's user, in / with the given environment only, stdin and stdout
// /dev/null, the end of stderr kept, no other descriptors, a time limit on it. Of the engine's commands stdout is read. Each has a session
// of its own, and where control groups are given one of those, with limits: what it leaves there is killed when it has ended; without one,
// what it leaves in its process group. At most kHooksAtOnce run at a time, kHooksOfUser of one user's; the others wait in order. The host's
// own prolog and epilog, too: without a user it is the agent's own.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/base/epoll.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/runner.h"
#include "common/base/result.h"
#include "common/node/effect.h"

namespace dtrain::proc {

inline constexpr Duration kNotifyTime = 60s;  // for one without a limit of its own
inline constexpr std::size_t kHooksAtOnce = 8;
inline constexpr std::size_t kHooksOfUser = 4;                 // of one user, at a time
inline constexpr std::size_t kHooksWaiting = 1024;             // further ones end at once with a cause
inline constexpr std::size_t kHooksOfUserWaiting = 128;        // of one user; further ones end at once with a cause
inline constexpr std::uint64_t kHookMemory = 256 << 20;        // bytes for one hook with all its processes, if the host has the controller
inline constexpr std::uint32_t kHookProcesses = 64;            // of one hook, if the host has the controller
inline constexpr std::uint64_t kImageHookMemory = 4ull << 30;  // of a command of the container engine (RunHook::of_images)
inline constexpr std::uint32_t kImageHookProcesses = 1024;     // threads count
inline constexpr Duration kDiskLookEvery = 1s;                 // at what is free where the images are
inline constexpr std::size_t kHookLineBytes = 200;             // of a HookProgress; the rest of the line is dropped
inline constexpr Duration kHookLineEvery = 2s;                 // of one hook; of the lines in between the last is handed on
inline constexpr Duration kLeftHookGroup = 100ms;              // pause before looking again whether a killed group is empty

class HookRunner {
 public:
  // `groups`: each hook gets a group in it; processes left there by an earlier agent are killed.
  static Result<std::unique_ptr<HookRunner>> open(Duration time_limit = kNotifyTime, Cgroups groups = {});
  // Kills running hooks: a hook belongs to the agent that started it, and dies with it even if the agent is killed.
  ~HookRunner();
  HookRunner(const HookRunner&) = delete;
  HookRunner& operator=(const HookRunner&) = delete;

  void run(Instant now, node::RunHook effect);  // -> HookEnded, before it HookProgress
  // Ends the hooks of the job, or the one with this token if it is not 0 -> HookEnded for each.
  void end(JobId job, std::uint64_t token = 0);
  int fd() const { return epoll_.fd(); }
  Instant deadline() const;
  void dispatch(Instant now, EventSink& sink);

 private:
  struct Hook;
  HookRunner(Duration time_limit, Cgroups groups);
  std::size_t running_of(const node::RunHook& effect) const;
  void kill(Hook& hook);
  void watch_disks(Instant now);
  void clear_left();
  void start_waiting(Instant now);
  void start(Instant now, const node::RunHook& effect);
  void refuse(std::uint64_t token, const std::string& cause);
  void read_errors(Hook& hook);
  void read_lines(Hook& hook);
  void hand_on_lines(Instant now, EventSink& sink);
  void reap(Hook& hook);

  Epoll epoll_;
  Duration time_limit_;
  Cgroups groups_;
  std::vector<Cgroups::Place> left_;  // groups of hooks that have ended, until nothing is in them
  Instant look_left_ = kNever;
  Instant look_disks_ = kNever;
  std::deque<node::RunHook> waiting_;
  std::map<std::uint64_t, std::unique_ptr<Hook>> running_;  // by token
  std::deque<node::HookEnded> ended_;
};

}  // namespace dtrain::proc
