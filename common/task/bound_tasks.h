// Which CPUs each task of this host has for itself, from before the launch of its shim until the shim is gone: a shim
// keeps its CPUs from one attempt to the next, and over lives of the agent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/task/cpu_choice.h"
#include "common/task/shim_spec.h"

namespace dtrain::task {

class BoundTasks {
 public:
  // `host`: the CPUs that may be given out; empty: no task gets any.
  explicit BoundTasks(std::vector<HostCpu> host) : host_(std::move(host)) {}

  // A shim that an earlier life of the agent launched has these CPUs, even if the host no longer offers them. Empty: none.
  void found(const AssignmentId& id, const std::vector<std::uint32_t>& cpus);
  // Fills in spec.cpus and spec.numa_node with CPUs that no other task has, or with none (choose_cpus), after freeing
  // what the assignment had before. `near`: NUMA nodes of its GPUs. Returns why the task gets none although it asks
  // for whole CPUs; "" otherwise. `shares`: breaks the rule that CPUs are not shared, to show that tests notice.
  std::string bind(ShimSpec& spec, const std::vector<std::int32_t>& near, bool shares = false);
  // To be called when the shim is gone or was never launched.
  void release(const AssignmentId& id) { held_.erase(id); }

 private:
  const std::vector<HostCpu> host_;
  std::map<AssignmentId, std::vector<std::uint32_t>> held_;
};

}  // namespace dtrain::task
