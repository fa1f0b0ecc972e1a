// Which processes of this host have opened the device nodes of GPUs. Reads /proc alone, and nothing there that waits for a process; as
// an agent that is not root it sees those of its own user.
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
  std::string root;       // prefix of /dev
  std::string proc = "/proc";
  std::string tasks_dir;  // of this agent's tasks: whose processes are in_task
};

// A user may have hundreds of thousands of descriptors, so a look goes by pieces: what else its thread is for is not held up by one user.
class GpuHolderSearch {
 public:
  GpuHolderSearch(const std::vector<task::OwnGpu>& gpus, HolderPlaces places);
  ~GpuHolderSearch();
  // Goes on for so many descriptors and processes. True: all were looked at. io: the processes cannot be listed.
  Result<bool> look(std::size_t most);
  // Each process once for each GPU. A GPU whose node is not there is held by nobody.
  std::vector<node::GpuHolder> take() { return std::move(holders_); }

 private:
  struct Target;
  using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;
  void look_at(const char* descriptor);
  void process_done();

  const HolderPlaces places_;
  std::vector<Target> targets_;
  Directory processes_, descriptors_;  // where it has got to
  std::string pid_;                    // whose descriptors
  std::vector<node::GpuHolder> holders_;
};

inline constexpr std::size_t kHolderLooks = 10'000;  // in one piece: some 10 ms

// All at once.
Result<std::vector<node::GpuHolder>> find_gpu_holders(const std::vector<task::OwnGpu>& gpus, const HolderPlaces& places);

}  // namespace dtrain::proc
