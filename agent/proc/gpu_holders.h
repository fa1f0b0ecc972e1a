// Which processes of this host have opened the device nodes of GPUs. Reads /proc alone, and nothing there that waits for a process; as
// an agent that is not root it sees those of its own user.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/node/event.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

struct HolderPlaces {
  std::string root;       // prefix of /dev
  std::string proc = "/proc";
  std::string tasks_dir;  // of this agent's tasks: whose processes are in_task
};

// Each process once for each GPU. A GPU whose node is not there is held by nobody. io: the processes cannot be listed.
Result<std::vector<node::GpuHolder>> find_gpu_holders(const std::vector<task::OwnGpu>& gpus, const HolderPlaces& places);

}  // namespace dtrain::proc
