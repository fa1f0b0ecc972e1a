#include "agent/dtrain-discover/nvidia_driver.h"

#include <map>

#include "agent/dtrain-discover/drivers.h"
#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

void read_information(const std::string& path, node::Gpu& gpu) {
  const auto keys = read_keys(path, ':');
  const auto value = [&](const char* key) {
    const auto found = keys.find(key);
    return found == keys.end() ? std::string() : clean_text(found->second, host::kDeviceTextBytes);
  };
  if (!value("Model").empty()) gpu.model = value("Model");
  // The driver writes question marks until somebody has used the GPU.
  if (const std::string uuid = value("GPU UUID"); uuid.find('?') == std::string::npos) gpu.uuid = uuid;
  if (value("GPU Excluded") == "Yes") gpu.healthy = false;
}

}  // namespace

void ask_nvidia_driver(const std::string& root, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings) {
  const std::string directory = root + "/proc/driver/nvidia/gpus";
  const auto names = list_directory(directory);
  if (!names) return mark_without_driver(gpus, kNvidia, "NVIDIA", "there is no " + directory, warnings);
  std::map<host::PciAddress, std::string> held;
  for (const std::string& name : *names)
    if (const auto address = host::parse_pci_address(name)) held[*address] = name;
  for (FoundGpu& gpu : gpus)
    if (const auto entry = held.find(gpu.address); gpu.vendor == kNvidia && entry != held.end())
      read_information(directory + "/" + entry->second + "/information", gpu.facts);
  remove_strangers(
      gpus, kNvidia, "NVIDIA", [&](const FoundGpu& gpu) { return held.contains(gpu.address); }, warnings);
}

}  // namespace dtrain::discover
