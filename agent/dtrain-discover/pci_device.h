// What the kernel says of a GPU's PCI device, whoever's driver it has.
#pragma once

#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

// Virtual functions whose physical one is here are removed: they are parts of it, made to be handed to virtual machines. The physical
// one of which such parts are made is marked unhealthy: whoever has a part would share it with a task. Fills in AMD's minor.
void ask_pci(const std::string& root, std::vector<FoundGpu>& gpus);

}  // namespace dtrain::discover
