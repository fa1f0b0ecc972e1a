#include "common/job/framework_roles.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace dtrain::job {

World world_of(const JobSpec& spec, const ClusterView& cluster, const TaskId& task) {
  const auto order = [&](const TaskId& id) { return std::pair(role_rules(spec.framework, id.role).order, std::cref(id)); };
  const auto comes_before = [&](const TaskId& a, const TaskId& b) {
    const auto one = order(a), other = order(b);
    return one.first != other.first ? one.first < other.first : one.second.get() < other.second.get();
  };
  World world;
  for (const auto& entry : cluster.tasks) {
    const TaskId& id = entry.first;
    if (!is_rank_role(spec, id.role)) continue;
    if (world.nodes == 0 || comes_before(id, world.first)) world.first = id;
    const std::uint32_t ranks = ranks_of_task(spec, id);
    world.size += ranks;
    ++world.nodes;
    if (!comes_before(id, task)) continue;
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
