// Finds the processes of this host that have opened the device nodes of GPUs. Reads only /proc, and nothing there
// that waits for a process; an agent that is not root sees only processes of its own user.
#pragma once

#include <dirent.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/node/event.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

struct HolderPlaces {
  std::string root;  // prefix of /dev
  std::string proc = "/proc";
  std::string tasks_dir;  // of this agent's tasks; their processes are marked in_task
};

// A search in pieces, because a user may have hundreds of thousands of descriptors, and one user must not block the
// thread's other work.
class GpuHolderSearch {
 public:
  GpuHolderSearch(const std::vector<task::OwnGpu>& gpus, HolderPlaces places);
  ~GpuHolderSearch();
  // Continues for at most `most` descriptors and processes. Returns true when all were looked at. ErrorCode::io: the
  // processes cannot be listed.
  Result<bool> look(std::size_t most);
  // Each process once for each GPU. A GPU whose node does not exist has no holders.
  std::vector<node::GpuHolder> take() { return std::move(holders_); }

 private:
  struct Target;
  using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;
  void look_at(const char* descriptor);
  void process_done();

  const HolderPlaces places_;
  std::vector<Target> targets_;
  Directory processes_, descriptors_;  // the present position
  std::string pid_;                    // of the process whose descriptors are being read
  std::vector<node::GpuHolder> holders_;
};

inline constexpr std::size_t kHolderLooks = 10'000;  // in one piece: some 10 ms

// All at once.
Result<std::vector<node::GpuHolder>> find_gpu_holders(const std::vector<task::OwnGpu>& gpus, const HolderPlaces& places);

}  // namespace dtrain::proc
