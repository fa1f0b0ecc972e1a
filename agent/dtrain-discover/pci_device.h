// What the kernel reports about a GPU's PCI device, whichever driver it has.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// Removes virtual functions whose physical one is here: they are parts of it, made for virtual machines. A physical one
// with such parts is marked unhealthy, because the owner of a part would share it with a task. Fills in AMD's minor.
void ask_pci(const std::string& root, std::vector<FoundGpu>& gpus);

}  // namespace dtrain::discover
