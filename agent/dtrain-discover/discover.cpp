#include "agent/dtrain-discover/discover.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "agent/dtrain-discover/amd_driver.h"
#include "agent/dtrain-discover/links.h"
#include "agent/dtrain-discover/nvidia_driver.h"
#include "agent/dtrain-discover/nvml.h"
#include "agent/dtrain-discover/pci_device.h"
#include "agent/dtrain-discover/small_file.h"
#include "agent/dtrain-discover/surroundings.h"
#include "agent/dtrain-discover/topology_text.h"

namespace dtrain::discover {
namespace {

constexpr const char* kNvidiaControl = "/dev/nvidiactl";  // exists where the driver runs, also in containers

// hwloc counts the memory of NUMA nodes, which may be less than the kernel's.
std::uint64_t kernel_memory(const std::string& root) {
  const auto keys = read_keys(root + "/proc/meminfo", ':');
  const auto total = keys.find("MemTotal");
  if (total == keys.end() || !total->second.ends_with(" kB")) return 0;
  return to_number(std::string_view(total->second).substr(0, total->second.size() - 3)).value_or(0) << 10;
}

// A name for gpuModel if no driver gives a better one.
void name_nameless(std::vector<FoundGpu>& gpus) {
  for (FoundGpu& gpu : gpus) {
    if (!gpu.facts.model.empty() || gpu.vendor == 0) continue;  // nothing is known of a GPU that is no longer here
    char name[16];
    std::snprintf(name, sizeof name, "%04x:%04x", gpu.vendor, gpu.device);
    gpu.facts.model = name;
  }
}

void limit_gpus(std::vector<FoundGpu>& gpus, std::vector<Error>& warnings) {
  if (gpus.size() <= host::kMostGpus) return;
  warnings.push_back({ErrorCode::limit,
                      "could not use all GPUs: " + std::to_string(gpus.size()) + " are more than " + std::to_string(host::kMostGpus),
                      "those with the highest numbers are left out"});
  gpus.resize(host::kMostGpus);
}

// The part of the answer that depends on the GPUs.
void put_gpus(hwloc_topology_t topology, std::vector<FoundGpu> gpus, const Request& request, host::Machine& machine) {
  number_gpus(gpus, request.known);
  limit_gpus(gpus, machine.warnings);
  set_groups(gpus);
  machine.known.clear();
  for (const FoundGpu& gpu : gpus) machine.known.push_back({gpu.facts.index, gpu.facts.pci});
  exclude_gpus(gpus, request.exclude, machine.warnings);
  name_nameless(gpus);
  machine.topology = topology_text(topology, machine.memory_bytes, gpus);
  machine.gpus.clear();
  for (const FoundGpu& gpu : gpus)
    if (!gpu.excluded) machine.gpus.push_back(gpu.facts);
}

bool may_have_nvidia(const std::vector<FoundGpu>& gpus) {
  return ::access(kNvidiaControl, F_OK) == 0 ||
         std::any_of(gpus.begin(), gpus.end(), [](const FoundGpu& gpu) { return gpu.vendor == kNvidia && gpu.facts.healthy; });
}

}  // namespace

void discover(const Request& request, const std::function<void(const host::Machine&)>& answer) {
  host::Machine machine;
  const auto topology = load_topology(request.source);
  if (!topology) {
    machine.error = topology.error();
    machine.complete = true;
    return answer(machine);
  }
  const bool of_file = !request.source.file.empty();
  machine.cpus = usable_cpus(topology->get());
  machine.cpu_list = list_cpus(topology->get());
  machine.memory_bytes = of_file ? 0 : kernel_memory(request.source.root);
  if (machine.memory_bytes == 0) machine.memory_bytes = local_memory(topology->get());
  machine.packages = static_cast<std::uint32_t>(std::max(0, hwloc_get_nbobjs_by_type(topology->get(), HWLOC_OBJ_PACKAGE)));
  machine.numa_nodes = static_cast<std::uint32_t>(std::max(0, hwloc_get_nbobjs_by_type(topology->get(), HWLOC_OBJ_NUMANODE)));

  std::vector<FoundGpu> gpus = find_gpus(topology->get());
  find_surroundings(topology->get(), gpus);
  find_links(topology->get(), gpus);
  if (!of_file) {
    ask_pci(request.source.root, gpus);
    ask_nvidia_driver(request.source.root, gpus, machine.warnings);
    ask_amd_driver(request.source.root, gpus, machine.warnings);
  }
  // The library knows only this machine.
  const bool here = !of_file && request.source.root.empty();
  const std::string nvml = !request.nvml.empty() ? request.nvml : here && may_have_nvidia(gpus) ? kNvmlLibrary : "";
  host::Machine first = machine;
  first.complete = nvml.empty();
  put_gpus(topology->get(), gpus, request, first);
  answer(first);
  if (nvml.empty()) return;
  ask_nvml(nvml, gpus, machine.warnings);
  machine.complete = true;
  put_gpus(topology->get(), std::move(gpus), request, machine);
  answer(machine);
}

}  // namespace dtrain::discover
