// What NVIDIA's kernel driver reports in /proc/driver/nvidia/gpus.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// Fills in model, UUID, minor and ordinal; a GPU that MIG has divided is unhealthy. A GPU that the driver does not
// hold is marked a stranger (it belongs to another container or virtual machine); without any driver all are
// unhealthy. Both cause a warning.
void ask_nvidia_driver(const std::string& root, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings);

}  // namespace dtrain::discover
