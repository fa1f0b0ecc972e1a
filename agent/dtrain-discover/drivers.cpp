#include "agent/dtrain-discover/drivers.h"

#include <algorithm>

namespace dtrain::discover {
namespace {

std::string name_all(const std::vector<FoundGpu>& gpus, const std::function<bool(const FoundGpu&)>& wanted) {
  std::string names;
  for (const FoundGpu& gpu : gpus)
    if (wanted(gpu)) names += (names.empty() ? "" : ", ") + gpu.facts.pci;
  return names;
}

}  // namespace

void mark_without_driver(std::vector<FoundGpu>& gpus, std::uint16_t vendor, const std::string& maker, const std::string& cause,
                         std::vector<Error>& warnings) {
  const std::string names = name_all(gpus, [&](const FoundGpu& gpu) { return gpu.vendor == vendor; });
  if (names.empty()) return;
  for (FoundGpu& gpu : gpus)
    if (gpu.vendor == vendor) make_unhealthy(gpu.facts, "the " + maker + " driver is not loaded");
  warnings.push_back({ErrorCode::unavailable, "could not use GPUs " + names + ": the " + maker + " driver is not loaded (" + cause + ")",
                      "install and load the driver and start the agent again, or name them in resources.excludeGpus"});
}

void mark_strangers(std::vector<FoundGpu>& gpus, std::uint16_t vendor, const std::string& maker,
                    const std::function<bool(const FoundGpu&)>& is_held, std::vector<Error>& warnings) {
  const auto is_stranger = [&](const FoundGpu& gpu) { return gpu.vendor == vendor && !is_held(gpu); };
  const std::string names = name_all(gpus, is_stranger);
  if (names.empty()) return;
  for (FoundGpu& gpu : gpus) {
    if (!is_stranger(gpu)) continue;
    gpu.stranger = true;
    make_unhealthy(gpu.facts, "the " + maker + " driver does not hold it");
  }
  warnings.push_back({ErrorCode::unavailable, "could not use GPUs " + names + ": the " + maker + " driver does not hold them",
                      "nothing, when they belong to another container or virtual machine"});
}

}  // namespace dtrain::discover
