#include "agent/dtrain-discover/surroundings.h"

#include <algorithm>
#include <string>

#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

using Path = std::vector<hwloc_obj_t>;  // the host bridge first, the device last

Path path_to(hwloc_obj_t device) {
  Path path;
  for (hwloc_obj_t object = device; object != nullptr && (object == device || object->type == HWLOC_OBJ_BRIDGE); object = object->parent)
    path.push_back(object);
  std::reverse(path.begin(), path.end());
  return path;
}

std::size_t in_common(const Path& a, const Path& b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

struct Nic {
  Path path;
  std::int32_t numa = -1;
  bool rdma = false;
  std::vector<std::string> names;
};

std::vector<Nic> find_nics(hwloc_topology_t topology) {
  std::vector<Nic> nics;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    Nic nic;
    for (const auto type : {HWLOC_OBJ_OSDEV_OPENFABRICS, HWLOC_OBJ_OSDEV_NETWORK}) {
      for (hwloc_obj_t os = device->io_first_child; os != nullptr; os = os->next_sibling)
        if (os->type == HWLOC_OBJ_OS_DEVICE && os->attr->osdev.type == type && os->name != nullptr)
          nic.names.push_back(clean_text(os->name, host::kDeviceTextBytes));
      nic.rdma = type == HWLOC_OBJ_OSDEV_OPENFABRICS && !nic.names.empty();
      if (!nic.names.empty()) break;
    }
    if (nic.names.empty()) continue;
    nic.path = path_to(device);
    nic.numa = numa_of(topology, device);
    nics.push_back(std::move(nic));
  }
  return nics;
}

std::vector<std::string> nearest(const std::vector<Nic>& nics, const Path& gpu, std::int32_t numa) {
  std::size_t deepest = 0;
  for (const Nic& nic : nics) deepest = std::max(deepest, in_common(nic.path, gpu));
  const auto is_near = [&](const Nic& nic) { return deepest > 0 ? in_common(nic.path, gpu) == deepest : numa >= 0 && nic.numa == numa; };
  const bool rdma = std::any_of(nics.begin(), nics.end(), [&](const Nic& nic) { return nic.rdma && is_near(nic); });
  std::vector<std::string> names;
  for (const Nic& nic : nics)
    if (is_near(nic) && nic.rdma == rdma) names.insert(names.end(), nic.names.begin(), nic.names.end());
  names.resize(std::min(names.size(), kNicsPerGpu));
  return names;
}

std::vector<std::string> bridges_in(const Path& path) {
  std::vector<std::string> bridges;
  for (const hwloc_obj_t object : path) {
    if (object->type != HWLOC_OBJ_BRIDGE || object->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI) continue;
    const auto& pci = object->attr->bridge.upstream.pci;
    bridges.push_back(host::PciAddress{pci.domain, pci.bus, pci.dev, pci.func}.text());
  }
  if (bridges.size() > kBridgesPerGpu) bridges.erase(bridges.begin(), bridges.end() - kBridgesPerGpu);
  return bridges;
}

}  // namespace

void find_surroundings(hwloc_topology_t topology, std::vector<FoundGpu>& gpus) {
  if (gpus.empty()) return;
  const std::vector<Nic> nics = find_nics(topology);
  for (FoundGpu& gpu : gpus) {
    const host::PciAddress& at = gpu.address;
    const hwloc_obj_t device = hwloc_get_pcidev_by_busid(topology, at.domain, at.bus, at.device, at.function);
    if (device == nullptr) continue;
    const Path path = path_to(device);
    gpu.facts.bridges = bridges_in(path);
    gpu.facts.nics = nearest(nics, path, gpu.facts.numa);
  }
}

}  // namespace dtrain::discover
