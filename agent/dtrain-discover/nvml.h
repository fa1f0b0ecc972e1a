// What NVIDIA's management library says. It is not there to build against, so it is looked for when needed,
// by name. It talks to the driver and may hang with it: ask it last.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

inline constexpr const char* kNvmlHasLostIt = "NVML has lost it";  // the driver holds it and its library does not
inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// Fills in model, UUID, memory, ordinal and NVLinks by PCI address; adds GPUs that only it knows. A GPU that does not answer,
// and all of them where the library is there but cannot reach the driver, are marked unhealthy, with a
// warning. Without the library: a warning only.
void ask_nvml(const std::string& library, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings);

}  // namespace dtrain::discover
