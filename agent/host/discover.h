// Asks dtrain-discover what hardware is here. hwloc and the GPU makers' libraries map much memory and may
// hang or crash; in a child of a moment they cost the agent nothing.
#pragma once

#include <string>
#include <vector>

#include "agent/host/machine.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::host {

inline constexpr Duration kDiscoveryPatience =
    20s;  // from the start to the last answer; then the child is killed
inline constexpr Duration kKillPatience =
    1s;  // for a killed child; one that is stuck in a driver is left behind
inline constexpr std::size_t kDiscoveryErrorBytes = 4096;  // of its stderr; more is read and dropped

struct DiscoverOptions {
  std::string program;                    // dtrain-discover
  std::string topology_file;              // hwloc XML to read instead of the machine; "": the machine
  std::string root;                       // prefix of /proc and /sys; "": none
  std::vector<std::string> exclude_gpus;  // PCI addresses or indexes
  std::vector<KnownGpu> known_gpus;       // the numbers that GPUs have
  std::string nvml;                       // library; "": the system's, where there may be NVIDIA GPUs
  Duration patience = kDiscoveryPatience;
};

// Blocks until the child has answered or patience is over. A child that answered for the kernel but not for
// the GPU makers' libraries: its first answer, with a warning and all NVIDIA GPUs marked unhealthy, since the
// driver behind them is in trouble. Errors: what the child says (not_found, invalid: the topology file), else
// unavailable.
Result<Machine> discover(const DiscoverOptions& options);

}  // namespace dtrain::host
