// The devices around a GPU on the PCI bus.
#pragma once

#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// further ones are left out: the nearest bridges and the first NICs are kept
inline constexpr std::size_t kNicsPerGpu = 8, kBridgesPerGpu = 8;

// Fills in the bridges above each GPU and its nearest network devices: those below the deepest common bridge, else
// those of the same NUMA node. Among equally near ones those with RDMA, if there are any.
void find_surroundings(hwloc_topology_t topology, std::vector<FoundGpu>& gpus);

}  // namespace dtrain::discover
