// JAX: the variables of Kubeflow's training operator (pkg/controller.v1/jax/envvar.go of release 1.9), and those that a bare
// jax.distributed.initialize() reads: JAX_* (jax/_src/distributed.py), and SLURM_* (jax/_src/clusters/slurm_cluster.py).
#include "common/job/framework_roles.h"

namespace dtrain::job {

namespace {

constexpr auto kJaxRoles = with_node(std::array{RoleRules{.name = "worker", .works = true, .rank = true, .order = 0}});

// Without it JAX would take the one device whose number is SLURM_LOCALID.
std::string all_devices(std::uint32_t count) {
  std::string out;
  for (std::uint32_t device = 0; device < count; ++device) out += (device > 0 ? "," : "") + std::to_string(device);
  return out;
}

void add_jax(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::map<std::string, std::string>& env) {
  const World world = world_of(spec, cluster, task);
  const auto role = spec.roles.find(task.role);
  if (role == spec.roles.end() || !is_rank_role(spec, task.role) || world.nodes == 0) return;
  const TaskAddress& first = cluster.tasks.at(world.first);
  env["COORDINATOR_ADDRESS"] = env["SLURM_STEP_NODELIST"] = first.host;
  env["COORDINATOR_PORT"] = std::to_string(first.port);
  env["JAX_COORDINATOR_ADDRESS"] = first.text();
  env["NUM_PROCESSES"] = env["JAX_NUM_PROCESSES"] = env["SLURM_NTASKS"] = std::to_string(world.nodes);
  env["PROCESS_ID"] = env["JAX_PROCESS_ID"] = env["SLURM_PROCID"] = env["SLURM_NODEID"] = std::to_string(world.nodes_before);
  env["SLURM_JOB_ID"] = std::to_string(cluster.job);
  env["SLURM_LOCALID"] = "0";
  env["SLURM_RESTART_COUNT"] = std::to_string(cluster.generation > 0 ? cluster.generation - 1 : 0);
  if (role->second.resources.gpus > 0) env["JAX_LOCAL_DEVICE_IDS"] = all_devices(role->second.resources.gpus);
}

}  // namespace

const FrameworkRules kJax{
    .roles = kJaxRoles, .collective = Collective::always, .environment = add_jax, .ranks = ranks_of_rank_role, .warm = true};

}  // namespace dtrain::job
