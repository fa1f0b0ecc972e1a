// Facts about this machine: name, boot, CPUs, memory, GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/node/event.h"

namespace dtrain::host {

// Resources kept for the system and the agent. Unset: one CPU and 4 GiB, but at most half of the CPUs and a quarter
// of the memory, so that a small machine still offers something. Given values are used as they are.
struct ReserveOptions {
  std::optional<std::uint64_t> cpu_millis;
  std::optional<std::uint64_t> memory_bytes;
};

struct Capacity {
  std::uint64_t cpu_millis = 0;
  std::uint64_t memory_bytes = 0;
};

// CPUs that this process may run on (affinity) and the memory of the machine.
Result<Capacity> total_capacity();
// These CPUs one by one, ascending.
Result<std::vector<std::uint32_t>> usable_cpus();
// The CPUs of `usable` with what is known of them; if nothing is known, each counts as a core of its own, and all as
// near each other.
std::vector<task::HostCpu> describe_cpus(const std::vector<std::uint32_t>& usable, const std::vector<task::HostCpu>& known);
Capacity after_reserve(const Capacity& total, const ReserveOptions& reserve);

// Changes at every start of the kernel.
Result<std::string> boot_id();
// The host's name as a node name: first label, lower case, other characters "-"; "node" when nothing is left of it.
std::string default_node_name();
std::string to_node_name(const std::string& host_name);
bool is_node_name(const std::string& name);

// `count` GPUs that do not exist, marked as such.
std::vector<node::NodeFacts::Gpu> pretended_gpus(std::uint32_t count);

// 128 random bits in hex, of the kernel.
Result<std::string> random_id();
Result<std::uint64_t> random_seed();

}  // namespace dtrain::host
