// Which GPUs NVLink or XGMI joins: as the topology says, as AMD's driver says (amd_driver.h) and as NVML says (nvml.h); each adds to
// FoundGpu::linked.
#pragma once

#include <hwloc.h>

#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// Stands for all switches of a machine, which join whatever is linked to one.
inline constexpr host::PciAddress kAnySwitch{0xffffffff, 0xff, 31, 7};

// Of hwloc's matrices of bandwidths. Links by way of a processor do not count.
void find_links(hwloc_topology_t topology, std::vector<FoundGpu>& gpus);

// GPUs that are linked, be it through others, get the same group: 0, 1, ... in order of index.
void set_groups(std::vector<FoundGpu>& gpus);

}  // namespace dtrain::discover
