// What lies around a GPU on the PCI bus.
#pragma once

#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

inline constexpr std::size_t kNicsPerGpu = 8, kBridgesPerGpu = 8;  // further ones are left out: the nearest bridges, the first NICs stay

// Fills in the bridges above each GPU and its nearest network devices: those below the deepest bridge that the two have in common,
// else those of the same NUMA node. Of equally near ones those that do RDMA, where there are such.
void find_surroundings(hwloc_topology_t topology, std::vector<FoundGpu>& gpus);

}  // namespace dtrain::discover
