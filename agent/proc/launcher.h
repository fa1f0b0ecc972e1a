// Launcher: how a shim comes to be. All else about shims is the same whoever started them: they are spoken to through their socket, die
// under a pidfd and are buried by their cgroup (tracked_shim.h).
#pragma once

#include <functional>

#include "agent/base/unique_fd.h"
#include "agent/proc/launch_file.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

class Launcher {
 public:
  virtual ~Launcher() = default;
  // False: those that were launched are to come up first.
  virtual bool has_room() const { return true; }
  // Prepares where the assignment's processes are to be, and writes that into `launch` before the shim reads it.
  virtual Status place(const task::ShimSpec& spec, LaunchFile& launch) = 0;
  // Starts the shim on the launch file in `directory`. `theirs`: its end of its first connection. Answers its pidfd; an empty one where
  // it is another's child: then on_answer() comes, and the pid is the shim's to tell.
  virtual Result<UniqueFd> launch(const task::ShimSpec& spec, const std::string& directory, const LaunchFile& launch, UniqueFd theirs) = 0;
  // The shim of that launch has said who it is; or (pid 0) it is given up or gone, and must not come any more.
  virtual void settled(const LaunchFile& /*launch*/, int /*pid*/) {}
  // Such a shim has started an attempt, which is this process.
  virtual void began(const LaunchFile& /*launch*/, int /*pid*/) {}

  // Of each launch that answered no pidfd, at most once, from dispatch() or launch(): nullopt where it has been begun, or nobody knows.
  using OnAnswer = std::function<void(const AssignmentId& id, const std::string& cgroup, std::optional<Error> refusal)>;
  virtual void dispatch(const OnAnswer& /*on_answer*/) {}
  virtual Instant deadline() const { return kNever; }
};

}  // namespace dtrain::proc
