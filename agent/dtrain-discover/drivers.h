// How GPUs are treated that their driver does not know; the same for every maker.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/dtrain-discover/gpu.h"

namespace dtrain::discover {

inline constexpr const char* kMigIsOn = "MIG is on: this version gives out whole GPUs only";

// No driver is loaded, so no task could use them. They stay visible as unhealthy.
void mark_without_driver(std::vector<FoundGpu>& gpus, std::uint16_t vendor, const std::string& maker, const std::string& cause,
                         std::vector<Error>& warnings);

// A driver is loaded and does not hold them: they belong to another container or virtual machine, or the driver gave them up.
void mark_strangers(std::vector<FoundGpu>& gpus, std::uint16_t vendor, const std::string& maker,
                    const std::function<bool(const FoundGpu&)>& is_held, std::vector<Error>& warnings);

}  // namespace dtrain::discover
