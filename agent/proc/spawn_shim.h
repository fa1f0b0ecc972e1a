// Starts dtrain-shim: own session, nothing inherited but its first connection, born in its cgroup.
#pragma once

#include <string>

#include "agent/proc/unique_fd.h"
#include "common/base/result.h"

namespace dtrain::proc {

struct ShimProcess {
  int pid = 0;
  UniqueFd pidfd;
  UniqueFd socket;   // the agent's end of its birth socket, non-blocking
};

// `cgroup`: the assignment's v2 cgroup, in whose child `shim` it is born; "": none.
Result<ShimProcess> spawn_shim(const std::string& shim_path, const std::string& directory, const std::string& cgroup);

}  // namespace dtrain::proc
