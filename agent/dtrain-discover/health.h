// How known GPUs are now: from /sys and, of NVIDIA's, from NVML. No hwloc: this is asked every minute.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/host/known_gpus.h"
#include "agent/host/machine.h"

namespace dtrain::discover {

// Calls `answer` once, or twice where NVML is asked, which may hang with its driver: first with what the kernel says.
void look_at_health(const std::string& root, const std::vector<host::KnownGpu>& gpus, const std::string& nvml,
                    const std::function<void(const host::GpuSamples&)>& answer);

}  // namespace dtrain::discover
