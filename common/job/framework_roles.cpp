#include "common/job/framework_roles.h"

#include <algorithm>
#include <utility>

namespace dtrain::job {

bool comes_before(const JobSpec& spec, const TaskId& one, const TaskId& other) {
  const auto order = [&](const TaskId& id) { return role_rules(spec.framework, id.role).order; };
  return order(one) != order(other) ? order(one) < order(other) : one < other;
}

std::map<TaskId, RankRange> rank_ranges(const JobSpec& spec, std::vector<TaskId> tasks) {
  const FrameworkRules& rules = rules_of(spec.framework);
  std::map<TaskId, RankRange> ranges;
  std::ranges::sort(tasks, [&](const TaskId& one, const TaskId& other) { return comes_before(spec, one, other); });
  std::uint32_t next = 0;
  for (const TaskId& id : tasks) {
    const std::uint32_t count = rules.ranks(spec, id);
    if (count > 0) ranges[id] = {next, count};
    next += count;
  }
  return ranges;
}

std::uint32_t ranks_of_rank_role(const JobSpec& spec, const TaskId& task) {
  return is_rank_role(spec, task.role) ? ranks_of_task(spec, task) : 0;
}

World world_of(const JobSpec& spec, const ClusterView& cluster, const TaskId& task) {
  World world;
  for (const auto& entry : cluster.tasks) {
    const TaskId& id = entry.first;
    if (!is_rank_role(spec, id.role)) continue;
    if (world.nodes == 0 || comes_before(spec, id, world.first)) world.first = id;
    const std::uint32_t ranks = ranks_of_task(spec, id);
    world.size += ranks;
    ++world.nodes;
    if (!comes_before(spec, id, task)) continue;
    world.before += ranks;
    ++world.nodes_before;
  }
  return world;
}

// The names are those of pkg/controller.v1/xgboost/xgboost.go of Kubeflow's training operator. Its one WORKER_PORT holds only if the port
// of all workers is the same; otherwise each address has its own port.
void add_tracker(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::map<std::string, std::string>& env) {
  const World world = world_of(spec, cluster, task);
  if (!is_rank_role(spec, task.role) || world.nodes == 0) return;
  const TaskAddress& first = cluster.tasks.at(world.first);
  env["MASTER_ADDR"] = first.host;
  env["MASTER_PORT"] = std::to_string(first.port);
  env["WORLD_SIZE"] = std::to_string(world.nodes);
  env["RANK"] = std::to_string(world.nodes_before);
  std::vector<const TaskAddress*> workers;
  for (const auto& [id, address] : cluster.tasks)
    if (role_rules(spec.framework, id.role).works) workers.push_back(&address);
  if (workers.empty()) return;
  const bool one_port = std::ranges::all_of(workers, [&](const TaskAddress* a) { return a->port == workers.front()->port; });
  std::string addresses;
  for (const TaskAddress* worker : workers) addresses += (addresses.empty() ? "" : ",") + (one_port ? worker->host : worker->text());
  env["WORKER_ADDRS"] = addresses;
  env["WORKER_PORT"] = std::to_string(workers.front()->port);
}

void check_usual_roles(const JobSpec& spec, std::vector<FileError>& errors) {
  if (has_role(spec, "chief") && has_role(spec, "master"))
    errors.push_back(
        {"conflict", "", 0, "spec.roles.master", "a job has a chief or a master, not both", "master is the older name of chief"});
}

}  // namespace dtrain::job
