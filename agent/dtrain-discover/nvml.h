// What NVIDIA's management library reports. It is not available at build time, so it is looked up by name when
// needed. It talks to the driver and may hang with it, so it is asked last.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

inline constexpr const char* kNvmlHasLostIt = "NVML has lost it";  // the driver holds the GPU and its library does not
inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Fills in model, UUID, memory, ordinal and NVLinks by PCI address; adds GPUs that only it knows. A GPU that does not
// answer is marked unhealthy, and so are all if the library exists but cannot reach the driver; each causes a
// warning. Without the library: only a warning.
void ask_nvml(const std::string& library, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings);

}  // namespace dtrain::discover
