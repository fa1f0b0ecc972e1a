// What AMD's kernel driver reports in /sys/class/kfd and beside the PCI device.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// Fills in model, UUID ("GPU-" and 16 hex digits, as ROCR_VISIBLE_DEVICES takes it), memory, ordinal and XGMI links.
// GPUs that the compute driver does not hold are treated as in ask_nvidia_driver().
void ask_amd_driver(const std::string& root, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings);

}  // namespace dtrain::discover
