#include "agent/dtrain-discover/gpu.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

// PCI class codes (PCI Code and ID Assignment Specification): base class and subclass.
bool is_display_or_accelerator(std::uint16_t pci_class) {
  return pci_class == 0x0300 ||  // VGA
         pci_class == 0x0302 ||  // 3D
         pci_class == 0x0380 ||  // other display
         pci_class == 0x1200;    // processing accelerator
}

// Graphics chips of board management controllers by others (1a03, 102b) are no GPU maker's; this one is AMD's ES1000.
constexpr std::uint16_t kEs1000 = 0x515e;

using PciAttributes = decltype(hwloc_obj_attr_u::pcidev);

bool computes(const PciAttributes& pci) {
  if (!is_display_or_accelerator(pci.class_id)) return false;
  return pci.vendor_id == kNvidia || (pci.vendor_id == kAmd && pci.device_id != kEs1000);
}

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* value = hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? std::string() : clean_text(value, host::kDeviceTextBytes);
}

void set_if_empty(std::string& text, const std::string& value) {
  if (text.empty()) text = value;
}

// One GPU may appear as cuda0, nvml0 and opencl0d0; each knows a part.
void read_infos(hwloc_obj_t device, node::Gpu& gpu) {
  for (hwloc_obj_t os = device->io_first_child; os != nullptr; os = os->next_sibling) {
    if (os->type != HWLOC_OBJ_OS_DEVICE) continue;
    set_if_empty(gpu.model, info_of(os, "GPUModel"));
    set_if_empty(gpu.uuid, info_of(os, "NVIDIAUUID"));
    for (const char* memory : {"CUDAGlobalMemorySize", "RSMIVRAMSize", "OpenCLGlobalMemorySize"})  // KiB
      if (gpu.memory_bytes == 0) gpu.memory_bytes = to_number(info_of(os, memory)).value_or(0) << 10;
  }
  set_if_empty(gpu.model, info_of(device, "PCIDevice"));
  if (gpu.model.empty() && device->name != nullptr) gpu.model = clean_text(device->name, host::kDeviceTextBytes);
}

}  // namespace

std::int32_t numa_of(hwloc_topology_t topology, hwloc_obj_t device) {
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology, device);
  if (near == nullptr || near->nodeset == nullptr || hwloc_bitmap_weight(near->nodeset) != 1) return -1;
  return hwloc_bitmap_first(near->nodeset);
}

FoundGpu make_gpu(host::PciAddress address, std::uint16_t vendor, std::uint16_t device) {
  FoundGpu gpu;
  gpu.address = address;
  gpu.vendor = vendor;
  gpu.device = device;
  gpu.facts.pci = address.text();
  gpu.facts.vendor = vendor == kNvidia ? "nvidia" : "amd";
  return gpu;
}

void make_unhealthy(node::Gpu& gpu, const std::string& reason) {
  if (std::exchange(gpu.healthy, false)) gpu.reason = clean_text(reason, host::kReasonBytes);
}

void number_gpus(std::vector<FoundGpu>& gpus, const std::vector<host::KnownGpu>& known) {
  std::map<host::PciAddress, std::uint32_t> numbers;
  std::uint32_t next = 0;
  for (const host::KnownGpu& gpu : known) {
    if (const auto address = host::parse_pci_address(gpu.pci)) numbers[*address] = gpu.index;
    next = std::max(next, gpu.index + 1);
  }
  std::erase_if(gpus, [&](const FoundGpu& gpu) { return gpu.stranger && !numbers.contains(gpu.address); });
  std::sort(gpus.begin(), gpus.end(), [](const FoundGpu& a, const FoundGpu& b) { return a.address < b.address; });
  for (FoundGpu& gpu : gpus) {
    const auto number = numbers.find(gpu.address);
    gpu.facts.index = number == numbers.end() ? next++ : number->second;
    if (number != numbers.end()) numbers.erase(number);
  }
  std::vector<FoundGpu> missing;
  for (const auto& [address, index] : numbers) {
    FoundGpu& gpu = missing.emplace_back();
    gpu.address = address;
    gpu.facts.pci = address.text();
    gpu.facts.index = index;
    make_unhealthy(gpu.facts, kNotOnTheBus);
  }
  const auto by_index = [](const FoundGpu& a, const FoundGpu& b) { return a.facts.index < b.facts.index; };
  std::sort(missing.begin(), missing.end(), by_index);
  const std::size_t room = host::kMostGpus - std::min(gpus.size(), host::kMostGpus);
  if (missing.size() > room) missing.erase(missing.begin(), missing.end() - static_cast<std::ptrdiff_t>(room));
  std::move(missing.begin(), missing.end(), std::back_inserter(gpus));
  std::sort(gpus.begin(), gpus.end(), by_index);
}

std::vector<FoundGpu> find_gpus(hwloc_topology_t topology) {
  std::map<host::PciAddress, FoundGpu> found;
  for (hwloc_obj_t device = nullptr; (device = hwloc_get_next_pcidev(topology, device)) != nullptr;) {
    const PciAttributes& pci = device->attr->pcidev;
    if (!computes(pci)) continue;
    FoundGpu gpu = make_gpu({pci.domain, pci.bus, pci.dev, pci.func}, pci.vendor_id, pci.device_id);
    gpu.facts.numa = numa_of(topology, device);
    read_infos(device, gpu.facts);
    found.emplace(gpu.address, std::move(gpu));
  }
  std::vector<FoundGpu> gpus;
  for (auto& [address, gpu] : found) gpus.push_back(std::move(gpu));
  return gpus;
}

void exclude_gpus(std::vector<FoundGpu>& gpus, const std::vector<std::string>& names, std::vector<Error>& warnings) {
  for (const std::string& name : names) {
    const auto address = host::parse_pci_address(name);
    const auto index = to_number(name);
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const FoundGpu& candidate) {
      return address ? candidate.address == *address : index && candidate.facts.index == *index;
    });
    if (gpu != gpus.end()) {
      gpu->excluded = true;
      continue;
    }
    std::string known;
    for (const FoundGpu& candidate : gpus) known += (known.empty() ? "" : ", ") + candidate.facts.pci;
    warnings.push_back({ErrorCode::not_found, "could not exclude GPU " + name + ": this machine has no such GPU",
                        "mend resources.excludeGpus; GPUs here: " + (known.empty() ? "none" : known)});
  }
}

}  // namespace dtrain::discover
