// Asks dtrain-discover for this machine's hardware. hwloc and the GPU makers' libraries map much memory and may hang
// or crash; in a short-lived child they cost the agent nothing.
#pragma once

#include <string>
#include <vector>

#include "agent/host/machine.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::host {

inline constexpr Duration kDiscoveryPatience = 20s;        // from the start to the last answer; then the child is killed
inline constexpr Duration kKillPatience = 1s;              // for a killed child; one that is stuck in a driver is left behind
inline constexpr std::size_t kDiscoveryErrorBytes = 4096;  // of its stderr; more is read and dropped

struct DiscoverOptions {
  std::string program;                    // dtrain-discover
  std::string topology_file;              // hwloc XML to read instead of the machine; "": the machine
  std::string root;                       // prefix of /proc and /sys; "": the real ones
  std::vector<std::string> exclude_gpus;  // PCI addresses or indexes
  std::vector<KnownGpu> known_gpus;       // GPUs with the numbers that they have already
  std::string nvml;                       // library; "": the system's, where there may be NVIDIA GPUs
  Duration patience = kDiscoveryPatience;
};

// Blocks until the child has answered or the time is over. If the child answered for the kernel but not for the GPU
// makers' libraries, its first answer is returned with a warning and all NVIDIA GPUs marked unhealthy, since their
// driver is in trouble. Errors: those of the child (not_found, invalid: the topology file), otherwise unavailable.
Result<Machine> discover(const DiscoverOptions& options);

}  // namespace dtrain::host
