// Which of this host's tasks have which CPUs for themselves, from before the launch of their shims until those are gone: a shim keeps them
// from one attempt to the next, and over the lives of the agent.
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
  // `host`: the CPUs that may be given out; empty: nobody gets any.
  explicit BoundTasks(std::vector<HostCpu> host) : host_(std::move(host)) {}

  // A shim that an earlier life of the agent launched has these, also such as are not the host's any more. Empty: none.
  void found(const AssignmentId& id, const std::vector<std::uint32_t>& cpus);
  // Fills in spec.cpus and spec.numa_node: CPUs that no other task has, or none (choose_cpus). What the assignment had before is free.
  // `near`: NUMA nodes of its GPUs. Answers why it gets none though it asks for whole ones; "": nothing to be said.
  // `shares`: the rule that they are nobody else's is broken, to show that tests notice.
  std::string bind(ShimSpec& spec, const std::vector<std::int32_t>& near, bool shares = false);
  // Its shim is gone, or never came to be.
  void release(const AssignmentId& id) { held_.erase(id); }

 private:
  const std::vector<HostCpu> host_;
  std::map<AssignmentId, std::vector<std::uint32_t>> held_;
};

}  // namespace dtrain::task
