// Hosts and jobs in one line each.
#pragma once

#include <string>
#include <vector>

#include "common/cluster/placement.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {

inline HostCapacity host(const std::string& name, std::uint64_t cpus, std::uint32_t gpus = 0, std::uint32_t numa_nodes = 1) {
  HostCapacity h;
  h.id = h.name = name;
  h.task_address = "10.0.0." + name;
  h.cpu_millis = cpus * 1000;
  h.memory_bytes = 8ull << 30;
  for (std::uint32_t i = 0; i < gpus; ++i) h.gpus.push_back({i, "NVIDIA A100", true, static_cast<std::int32_t>(i * numa_nodes / gpus)});
  return h;
}

inline HostCapacity in_rack(HostCapacity h, const std::string& rack) {
  h.labels["rack"] = rack;
  return h;
}

inline std::vector<TaskId> tasks_of(const std::string& role, std::uint32_t n) {
  std::vector<TaskId> tasks;
  for (std::uint32_t i = 0; i < n; ++i) tasks.push_back({role, i});
  return tasks;
}
inline std::vector<TaskId> workers(std::uint32_t n) { return tasks_of("worker", n); }

// Workers that each take so many cpus and GPUs.
inline job::JobSpec workers_job(std::uint32_t n, std::uint64_t cpus, std::uint32_t gpus = 0) {
  job::JobSpec s = generic_job(n);
  s.roles["worker"].resources.cpu_millis = cpus * 1000;
  s.roles["worker"].resources.gpus = gpus;
  return s;
}

// The same as a collective job: ranks that wait for each other.
inline job::JobSpec ranks_job(std::uint32_t n, std::uint64_t cpus, std::uint32_t gpus = 0) {
  job::JobSpec s = workers_job(n, cpus, gpus);
  s.framework = job::Framework::tensorflow;
  return s;
}

inline Result<std::vector<TaskPlacement>> place(const job::JobSpec& spec, const std::vector<TaskId>& tasks, std::vector<HostCapacity> hosts,
                                                PortRange ports = {}) {
  return place(spec, tasks, Capacity(std::move(hosts), ports));
}

inline std::string why(const job::JobSpec& spec, std::vector<HostCapacity> hosts) {
  const auto placed = place(spec, wanted_tasks(spec), std::move(hosts));
  return placed ? "it fits" : placed.error().message;
}

}  // namespace dtrain::cluster
