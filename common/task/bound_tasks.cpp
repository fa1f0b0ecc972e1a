#include "common/task/bound_tasks.h"

#include <set>

namespace dtrain::task {

void BoundTasks::found(const AssignmentId& id, const std::vector<std::uint32_t>& cpus) {
  if (!cpus.empty()) held_[id] = cpus;
}

std::string BoundTasks::bind(ShimSpec& spec, const std::vector<std::int32_t>& near, bool shares) {
  held_.erase(spec.id);
  std::set<std::uint32_t> taken;
  for (const auto& [id, cpus] : held_)
    if (!shares) taken.insert(cpus.begin(), cpus.end());
  CpuChoice choice = choose_cpus(host_, taken, spec.cpu_millis, near);
  spec.cpus = choice.cpus;
  spec.numa_node = choice.numa_node;
  if (!choice.cpus.empty()) held_[spec.id] = std::move(choice.cpus);
  return std::move(choice.reason);
}

}  // namespace dtrain::task
