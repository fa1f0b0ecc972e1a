// hwloc's view of this machine, of a tree of files that looks like one, or of a file.
#pragma once

#include <hwloc.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/task/cpu_choice.h"

namespace dtrain::discover {

struct Source {
  std::string root;  // prefix of /proc and /sys; "": this machine's own
  std::string file;  // hwloc XML; not "": read instead of a machine
};

using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)>;

// Loads the topology with PCI devices. What the process may not use (cgroup cpuset) is left out.
// ErrorCode::not_found: the file does not exist; invalid: this hwloc cannot read it.
Result<Topology> load_topology(const Source& source);

// Logical CPUs, and bytes of all NUMA nodes.
std::uint64_t usable_cpus(hwloc_topology_t topology);
std::uint64_t local_memory(hwloc_topology_t topology);
// The logical CPUs one by one, in order of index. If several NUMA nodes are near one (memory on the package, say), its lowest.
std::vector<task::HostCpu> list_cpus(hwloc_topology_t topology);

}  // namespace dtrain::discover
