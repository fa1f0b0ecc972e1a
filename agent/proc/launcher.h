// Launcher: how a shim comes to be. All else about shims is the same whoever started them: they are spoken to through their socket, die
// under a pidfd and are buried by their cgroup (tracked_shim.h).
#pragma once

#include "agent/proc/launch_file.h"
#include "agent/proc/unique_fd.h"
#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

class Launcher {
 public:
  virtual ~Launcher() = default;
  // Prepares where the assignment's processes are to be, and writes that into `launch` before the shim reads it.
  virtual Status place(const task::ShimSpec& spec, LaunchFile& launch) = 0;
  // Starts the shim on the launch file in `directory`. `theirs`: its end of its first connection. Answers its pidfd.
  virtual Result<UniqueFd> launch(const task::ShimSpec& spec, const std::string& directory, const LaunchFile& launch, UniqueFd theirs) = 0;
};

}  // namespace dtrain::proc
