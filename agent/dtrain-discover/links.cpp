#include "agent/dtrain-discover/links.h"

#include <hwloc/distances.h>

#include <algorithm>
#include <map>
#include <optional>

namespace dtrain::discover {
namespace {

std::optional<host::PciAddress> address_of(hwloc_obj_t object) {
  if (object != nullptr && object->type == HWLOC_OBJ_OS_DEVICE) object = object->parent;
  if (object == nullptr || object->type != HWLOC_OBJ_PCI_DEVICE) return std::nullopt;
  const auto& pci = object->attr->pcidev;
  return host::PciAddress{pci.domain, pci.bus, pci.dev, pci.func};
}

void read_matrix(const hwloc_distances_s& matrix, std::vector<FoundGpu>& gpus) {
  for (unsigned from = 0; from < matrix.nbobjs; ++from) {
    const auto address = address_of(matrix.objs[from]);
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const FoundGpu& g) { return address && g.address == *address; });
    if (gpu == gpus.end()) continue;
    for (unsigned to = 0; to < matrix.nbobjs; ++to)
      if (const auto other = address_of(matrix.objs[to]); other && to != from && matrix.values[from * matrix.nbobjs + to] > 0)
        gpu->linked.push_back(*other);
  }
}

// Union-find: the representative of the set that contains `of`.
std::size_t leader(std::vector<std::size_t>& parents, std::size_t of) {
  while (parents[of] != of) of = parents[of] = parents[parents[of]];
  return of;
}

}  // namespace

void find_links(hwloc_topology_t topology, std::vector<FoundGpu>& gpus) {
  for (const char* name : {"NVLinkBandwidth", "XGMIBandwidth"}) {
    hwloc_distances_s* matrix = nullptr;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(topology, name, &count, &matrix, 0) != 0 || count == 0) continue;
    read_matrix(*matrix, gpus);
    hwloc_distances_release(topology, matrix);
  }
}

void set_groups(std::vector<FoundGpu>& gpus) {
  std::map<host::PciAddress, std::size_t> numbers;  // of GPUs, and of what is between them
  for (const FoundGpu& gpu : gpus) {
    numbers.try_emplace(gpu.address, numbers.size());
    for (const host::PciAddress& other : gpu.linked) numbers.try_emplace(other, numbers.size());
  }
  std::vector<std::size_t> parents(numbers.size());
  for (std::size_t i = 0; i < parents.size(); ++i) parents[i] = i;
  for (const FoundGpu& gpu : gpus)
    for (const host::PciAddress& other : gpu.linked) parents[leader(parents, numbers.at(gpu.address))] = leader(parents, numbers.at(other));
  std::map<std::size_t, unsigned> members;
  for (const FoundGpu& gpu : gpus) ++members[leader(parents, numbers.at(gpu.address))];
  std::map<std::size_t, std::int32_t> groups;
  for (FoundGpu& gpu : gpus) {
    const std::size_t set = leader(parents, numbers.at(gpu.address));
    gpu.facts.group = members[set] < 2 ? -1 : groups.try_emplace(set, static_cast<std::int32_t>(groups.size())).first->second;
  }
}

}  // namespace dtrain::discover
