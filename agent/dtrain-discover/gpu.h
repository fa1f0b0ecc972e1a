// The GPUs that compute, among a topology's PCI devices.
#pragma once

#include <hwloc.h>

#include <cstdint>
#include <string>
#include <vector>

#include "agent/host/pci_address.h"
#include "common/base/result.h"
#include "common/node/host_facts.h"

namespace dtrain::discover {

inline constexpr std::uint16_t kNvidia = 0x10de, kAmd = 0x1002;

struct FoundGpu {
  host::PciAddress address;
  std::uint16_t vendor = 0, device = 0;
  bool excluded = false;  // by the operator
  node::Gpu facts;        // index, pci, vendor, numa; the rest as far as known
};

// By PCI class and maker, one per address, in order of address; index counts from 0. Consoles of board
// management controllers are left out. Names, UUIDs and memory are taken from what the topology says (a file
// may, a kernel does not).
std::vector<FoundGpu> find_gpus(hwloc_topology_t topology);

// A GPU that only its driver shows (some sandboxes hide PCI devices).
FoundGpu make_gpu(host::PciAddress address, std::uint16_t vendor, std::uint16_t device);

void number_gpus(std::vector<FoundGpu>& gpus);  // sorts, sets index

// Marks those named by PCI address or index. A name that fits none: a warning.
void exclude_gpus(std::vector<FoundGpu>& gpus, const std::vector<std::string>& names,
                  std::vector<Error>& warnings);

}  // namespace dtrain::discover
