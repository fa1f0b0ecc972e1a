// Which GPUs NVLink or XGMI joins: by the topology, by AMD's driver (amd_driver.h) and by NVML (nvml.h); each adds to FoundGpu::linked.
#pragma once

#include <hwloc.h>

#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// Stands for all switches of a machine, which join everything linked to one of them.
inline constexpr host::PciAddress kAnySwitch{0xffffffff, 0xff, 31, 7};

// From hwloc's bandwidth matrices. Links through a processor do not count.
void find_links(hwloc_topology_t topology, std::vector<FoundGpu>& gpus);

// GPUs that are linked, directly or through others, get the same group: 0, 1, ... in order of index.
void set_groups(std::vector<FoundGpu>& gpus);

}  // namespace dtrain::discover
