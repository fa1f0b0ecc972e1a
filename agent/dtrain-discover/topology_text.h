// A machine as a small indented tree for people.
#pragma once

#include <hwloc.h>

#include <cstdint>
#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// One line for the machine, below it a line for each package, NUMA node (with memory and cores) and GPU (under its
// NUMA node, or under the machine if that is not known). Equal neighbours without a GPU share a line. At most
// host::kTopologyTextBytes; a longer text ends with a line that says so. Every line ends with a newline.
std::string topology_text(hwloc_topology_t topology, std::uint64_t memory_bytes, const std::vector<FoundGpu>& gpus);

}  // namespace dtrain::discover
