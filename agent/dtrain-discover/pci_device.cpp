#include "agent/dtrain-discover/pci_device.h"

#include <unistd.h>

#include <string_view>

#include "agent/dtrain-discover/small_file.h"

namespace dtrain::discover {
namespace {

constexpr std::string_view kRenderNode = "renderD";

std::string directory_of(const std::string& root, const FoundGpu& gpu) { return root + "/sys/bus/pci/devices/" + gpu.facts.pci; }

void read_minor(const std::string& device, node::Gpu& gpu) {
  for (const std::string& name : list_directory(device + "/drm").value_or(std::vector<std::string>()))
    if (name.starts_with(kRenderNode))
      if (const auto minor = to_number(std::string_view(name).substr(kRenderNode.size())); minor && *minor < kMostMinors)
        gpu.minor = static_cast<std::int32_t>(*minor);
}

}  // namespace

void ask_pci(const std::string& root, std::vector<FoundGpu>& gpus) {
  std::erase_if(gpus, [&](const FoundGpu& gpu) { return ::access((directory_of(root, gpu) + "/physfn").c_str(), F_OK) == 0; });
  for (FoundGpu& gpu : gpus) {
    const std::string device = directory_of(root, gpu);
    if (const auto parts = read_number(device + "/sriov_numvfs"); parts && *parts > 0)
      make_unhealthy(gpu.facts, "it is cut into " + std::to_string(*parts) + " virtual functions");
    if (gpu.vendor == kAmd) read_minor(device, gpu.facts);
  }
}

}  // namespace dtrain::discover
