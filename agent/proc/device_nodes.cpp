#include "agent/proc/device_nodes.h"

#include <unistd.h>

#include <algorithm>

#include "agent/base/small_file.h"

namespace dtrain::proc {

namespace {

// Nodes of the driver as a whole. NVLink between hosts uses channels, and storage may write into a GPU directly.
constexpr const char* kBesideNvidia[] = {
    "/dev/nvidiactl", "char-nvidia-uvm", "/dev/nvidia-modeset", "char-nvidia-caps", "char-nvidia-caps-imex-channels",
    "char-nvidia-fs", "char-gdrdrv"};

tl::unexpected<Error> unknown(const std::string& pci, const std::string& cause) {
  return fail(ErrorCode::unavailable, "could not tell the device nodes of GPU " + pci + ": " + cause,
              "check that its driver is loaded, and begin the agent anew; until then its tasks may open every device");
}

// The first program that needs unified memory loads its module, which a task that may not open its node cannot do.
bool has_unified_memory(const std::string& root) {
  return read_small_file(root + "/proc/devices").value_or("").find(" nvidia-uvm\n") != std::string::npos;
}

}  // namespace

std::string own_device_node(const task::OwnGpu& gpu) {
  return (gpu.vendor == "nvidia" ? "/dev/nvidia" : "/dev/dri/renderD") + std::to_string(gpu.minor);
}

Result<std::vector<std::string>> device_nodes(const std::vector<task::OwnGpu>& gpus, const std::string& root) {
  std::vector<std::string> nodes;
  const auto add = [&](const std::string& node) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  };
  for (const task::OwnGpu& gpu : gpus) {
    const bool nvidia = gpu.vendor == "nvidia";
    if (!nvidia && gpu.vendor != "amd") return unknown(gpu.pci, "it is neither NVIDIA's nor AMD's");
    if (gpu.minor < 0) return unknown(gpu.pci, "its driver named no minor number when the agent began");
    if (nvidia && !has_unified_memory(root)) return unknown(gpu.pci, "module nvidia-uvm is not loaded (nvidia-modprobe -u -c 0)");
    add(own_device_node(gpu));
    if (nvidia)
      for (const char* node : kBesideNvidia) add(node);
    else add("/dev/kfd");
  }
  return nodes;
}

std::vector<std::string> present_nodes(const std::vector<task::OwnGpu>& gpus, const std::string& root) {
  std::vector<std::string> nodes;
  const auto add = [&](const std::string& node) {
    if (::access((root + node).c_str(), F_OK) == 0 && std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  };
  for (const task::OwnGpu& gpu : gpus) {
    add(own_device_node(gpu));
    if (gpu.vendor == "nvidia")
      for (const char* node : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}) add(node);
    else add("/dev/kfd");
  }
  return nodes;
}

}  // namespace dtrain::proc
