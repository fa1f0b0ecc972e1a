// Chooses the CPUs that a task gets for itself: as far as possible near its GPUs, on one NUMA node, in whole cores. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace dtrain::task {

// A logical CPU that tasks of this host may run on.
struct HostCpu {
  std::uint32_t index = 0;  // as the kernel counts them
  std::uint32_t core = 0;   // equal for the hyperthreads of one core, different for others
  std::int32_t numa = -1;   // its NUMA node; -1: not known, and all such CPUs count as one node
  bool operator==(const HostCpu&) const = default;
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("core", core);
    v("numa", numa);
  }
};

// How many CPUs a task that asks for `millis` gets for itself: 0 where it asks for a part of a CPU (500m, 1500m), or for nothing.
std::uint32_t own_cpus(std::uint64_t millis);

struct CpuChoice {
  std::vector<std::uint32_t> cpus;  // ascending; empty: none
  std::int32_t numa_node = -1;      // the node of all of them, on a host with several known nodes; else -1
  std::string reason;               // why it gets none although it asks for whole ones; "" otherwise
};

// Chooses own_cpus(millis) CPUs of `host` (each index once) that are not in `taken`, all or none. `near`: NUMA nodes
// of the task's GPUs; unknown ones and -1 are ignored. Tried in this order:
//   1. the node of `near` with the fewest free CPUs that are enough;
//   2. the nodes of `near` together, those with the most free CPUs first;
//   3. the other node with the fewest free CPUs that are enough;
//   4. all nodes: those of `near` first, then those with the most free CPUs.
// Within a node: whole cores as long as whole ones are needed, then the rest of cores that are in use already, those
// with the least left first, and only then a part of a whole core. Among equals the lowest numbers win.
//
// With an empty `host` (nothing is known) no task is bound, and no reason is given.
CpuChoice choose_cpus(const std::vector<HostCpu>& host, const std::set<std::uint32_t>& taken, std::uint64_t millis,
                      const std::vector<std::int32_t>& near);

}  // namespace dtrain::task
