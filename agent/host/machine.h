// What dtrain-discover finds out about a machine, and the form of its output: one or two frames of a length (4 bytes,
// big-endian) and an encoded Machine. The first frame has the kernel's facts; if a GPU maker's library is asked too,
// which may hang with its driver, a second frame replaces the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/known_gpus.h"
#include "common/base/result.h"
#include "common/node/gpu_sample.h"
#include "common/node/host_facts.h"
#include "common/task/cpu_choice.h"

namespace dtrain::host {

inline constexpr std::size_t kMachineBytes = 1 << 20;        // one frame; a longer one: the answer is refused
inline constexpr std::size_t kTopologyTextBytes = 2 << 10;   // it travels with the facts; longer: cut, and says so
inline constexpr std::size_t kTopologyFileBytes = 16 << 20;  // a larger file is refused
inline constexpr std::size_t kDeviceTextBytes = 64;          // model and UUID; longer: cut
inline constexpr std::size_t kReasonBytes = 128;             // why a GPU is not healthy; longer: cut

struct Machine {
  std::optional<Error> error;  // set: nothing else is
  bool complete = false;       // no further frame follows
  std::uint64_t cpus = 0;      // logical CPUs that may be used
  std::uint64_t memory_bytes = 0;
  std::uint32_t packages = 0, numa_nodes = 0;
  std::vector<task::HostCpu> cpu_list;  // the same CPUs one by one, in order of index
  std::vector<node::Gpu> gpus;          // in order of index, without excluded ones, and with GPUs that were here once
  std::vector<KnownGpu> known;          // the index of every GPU, as it must be remembered
  std::string topology;                 // for people: packages, NUMA nodes, cores, GPUs; at most kTopologyTextBytes
  std::vector<Error> warnings;
  template <class V>
  void fields(V& v) {
    v("error", error);
    v("complete", complete);
    v("cpus", cpus);
    v("memory_bytes", memory_bytes);
    v("packages", packages);
    v("numa_nodes", numa_nodes);
    v("gpus", gpus);
    v("topology", topology);
    v("warnings", warnings);
    v("known", known);
    v("cpu_list", cpu_list);
  }
};

// The output of dtrain-discover --health, in the same form: one or two frames, the second including a GPU maker's library.
struct GpuSamples {
  bool complete = false;  // no further frame follows
  std::vector<node::GpuSample> gpus;
  template <class V>
  void fields(V& v) {
    v("complete", complete);
    v("gpus", gpus);
  }
};

}  // namespace dtrain::host
