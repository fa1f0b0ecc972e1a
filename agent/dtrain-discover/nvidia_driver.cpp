#include "agent/dtrain-discover/nvidia_driver.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "agent/dtrain-discover/drivers.h"
#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

// Parts that MIG makes of a GPU have directories gi0, gi1, ... in the capabilities of its minor.
bool has_mig_parts(const std::string& root, std::int32_t minor) {
  const auto names = list_directory(root + "/proc/driver/nvidia/capabilities/gpu" + std::to_string(minor) + "/mig");
  return names && std::any_of(names->begin(), names->end(), [](const std::string& name) { return name.starts_with("gi"); });
}

void read_information(const std::string& path, node::Gpu& gpu) {
  const auto keys = read_keys(path, ':');
  const auto value = [&](const char* key) {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string() : clean_text(found->second, host::kDeviceTextBytes);
  };
  if (!value("Model").empty()) gpu.model = value("Model");
  // The driver writes question marks until the GPU has been used.
  if (const std::string uuid = value("GPU UUID"); uuid.find('?') == std::string::npos) gpu.uuid = uuid;
  if (value("GPU Excluded") == "Yes") make_unhealthy(gpu, "the NVIDIA driver was told to leave it out");
  if (const auto minor = to_number(value("Device Minor")); minor && *minor < kMostMinors) gpu.minor = static_cast<std::int32_t>(*minor);
}

}  // namespace

void ask_nvidia_driver(const std::string& root, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings) {
  const std::string directory = root + "/proc/driver/nvidia/gpus";
  const auto names = list_directory(directory);
  if (!names) return mark_without_driver(gpus, kNvidia, "NVIDIA", "there is no " + directory, warnings);
  std::map<host::PciAddress, std::string> held;
  for (const std::string& name : *names)
    if (const auto address = host::parse_pci_address(name)) held[*address] = name;
  for (FoundGpu& gpu : gpus) {
    const auto entry = held.find(gpu.address);
    if (gpu.vendor != kNvidia || entry == held.end()) continue;
    read_information(directory + "/" + entry->second + "/information", gpu.facts);
    gpu.facts.ordinal = static_cast<std::int32_t>(std::distance(held.begin(), entry));
    if (gpu.facts.minor >= 0 && has_mig_parts(root, gpu.facts.minor)) make_unhealthy(gpu.facts, kMigIsOn);
  }
  mark_strangers(
      gpus, kNvidia, "NVIDIA", [&](const FoundGpu& gpu) { return held.contains(gpu.address); }, warnings);
}

}  // namespace dtrain::discover
