// The compute GPUs among a topology's PCI devices.
#pragma once

#include <hwloc.h>

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host/known_gpus.h"
#include "agent/host/pci_address.h"
#include "common/base/result.h"
#include "common/node/host_facts.h"

namespace dtrain::discover {

inline constexpr std::uint16_t kNvidia = 0x10de, kAmd = 0x1002;
inline constexpr std::uint64_t kMostMinors = 1 << 20;  // of device files, as the kernel has it

inline constexpr const char* kNotOnTheBus = "it is not on the bus any more";

struct FoundGpu {
  host::PciAddress address;
  std::uint16_t vendor = 0, device = 0;
  bool excluded = false;                 // by the operator
  bool stranger = false;                 // its driver does not hold it
  std::vector<host::PciAddress> linked;  // the GPUs that NVLink or XGMI joins it with (links.h)
  node::Gpu facts;                       // index, pci, vendor, numa; the others as far as known
};

// By PCI class and maker, one for each address, in order of address. Graphics chips of board management controllers
// are left out. Names, UUIDs and memory are taken from the topology if it has them (a file may, a kernel does not).
std::vector<FoundGpu> find_gpus(hwloc_topology_t topology);

// Number of the only NUMA node that the device is near to; -1: several, or none known.
std::int32_t numa_of(hwloc_topology_t topology, hwloc_obj_t device);

// A GPU that only its driver shows (some sandboxes hide PCI devices).
FoundGpu make_gpu(host::PciAddress address, std::uint16_t vendor, std::uint16_t device);

// Marks the GPU unhealthy; the first cause is kept.
void make_unhealthy(node::Gpu& gpu, const std::string& reason);

// Sets index and sorts by it: known GPUs keep theirs, others get the next ones in order of address. Known GPUs that
// are missing are added as unhealthy, as far as host::kMostGpus permits; unknown strangers are left out.
void number_gpus(std::vector<FoundGpu>& gpus, const std::vector<host::KnownGpu>& known);

// Marks the GPUs named by PCI address or index. A name that matches none is a warning.
void exclude_gpus(std::vector<FoundGpu>& gpus, const std::vector<std::string>& names, std::vector<Error>& warnings);

}  // namespace dtrain::discover
