// The present state of known GPUs: from /sys and, for NVIDIA's, from NVML. No hwloc, because this is asked every minute.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/host/known_gpus.h"
#include "agent/host/machine.h"

namespace dtrain::discover {

// Calls `answer` once with what the kernel reports, and a second time if NVML is asked, which may hang with its driver.
void look_at_health(const std::string& root, const std::vector<host::KnownGpu>& gpus, const std::string& nvml,
                    const std::function<void(const host::GpuSamples&)>& answer);

}  // namespace dtrain::discover
