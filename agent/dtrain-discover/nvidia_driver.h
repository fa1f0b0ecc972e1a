// What NVIDIA's kernel driver says in /proc/driver/nvidia/gpus.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// Fills in model, UUID, minor and ordinal; one that MIG has cut is unhealthy. A GPU that the driver does not hold is marked a
// stranger (another container's, a virtual machine's); without any driver all are unhealthy. Either is a warning.
void ask_nvidia_driver(const std::string& root, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings);

}  // namespace dtrain::discover
