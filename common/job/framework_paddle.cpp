// PaddlePaddle. Workers alone, or with a master: paddle.distributed.launch meets at the first of them and starts trainers, with a master
// also servers (pkg/controller.v1/paddlepaddle/envvar.go of Kubeflow's training operator, release 1.9). With a ps the tasks are
// servers and trainers themselves, each with the addresses of all (controllers/paddlejob_helper.go of paddle-operator).
#include "common/job/framework_roles.h"

namespace dtrain::job {

namespace {

using Env = std::map<std::string, std::string>;

constexpr std::string_view kMaster = "master", kServer = "ps", kTrainer = "worker";

constexpr std::array kPaddleRoles{
    RoleRules{.name = kServer, .serves = true, .ends = false, .stateful = true, .start = 0, .avoid_gpu_hosts = AvoidGpuHosts::prefer},
    RoleRules{.name = kMaster, .leads = true, .stateful = true, .rank = true, .order = 0},
    RoleRules{.name = kTrainer, .works = true, .rank = true, .order = 1},
};

std::string addresses_of(const ClusterView& cluster, std::string_view role) {
  std::string out;
  for (const auto& [task, address] : cluster.tasks)
    if (task.role == role) out += (out.empty() ? "" : ",") + address.text();
  return out;
}

// PADDLE_TRAINER_NUM and PADDLE_SERVER_NUM turn Paddle's launcher to parameter servers: a job of workers alone has neither.
void add_launcher(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, Env& env) {
  const World world = world_of(spec, cluster, task);
  if (!is_rank_role(spec, task.role) || world.nodes == 0) return;
  env["PADDLE_MASTER"] = cluster.tasks.at(world.first).text();
  env["PADDLE_NNODES"] = std::to_string(world.nodes);
  env["PADDLE_JOB_ID"] = cluster.job_name;
  env["POD_IP"] = cluster.tasks.at(task).host;
  if (has_role(spec, kMaster)) env[task.role == kMaster ? "PADDLE_SERVER_NUM" : "PADDLE_TRAINER_NUM"] = "1";
}

void add_servers(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, Env& env) {
  if (task.role != kServer && task.role != kTrainer) return;
  const TaskAddress& own = cluster.tasks.at(task);
  const auto trainers = spec.roles.find(std::string(kTrainer));
  env["TRAINING_ROLE"] = env["PADDLE_TRAINING_ROLE"] = task.role == kServer ? "PSERVER" : "TRAINER";
  env["PADDLE_TRAINER_ID"] = std::to_string(task.index);
  env["PADDLE_TRAINERS_NUM"] = std::to_string(trainers == spec.roles.end() ? 0 : trainers->second.replicas);
  env["PADDLE_TRAINER_ENDPOINTS"] = addresses_of(cluster, kTrainer);
  env["PADDLE_PSERVERS_IP_PORT_LIST"] = addresses_of(cluster, kServer);
  env["POD_IP"] = own.host;
  env["PADDLE_PORT"] = std::to_string(own.port);
}

void add_paddle(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, Env& env) {
  if (!cluster.tasks.contains(task)) return;
  (has_role(spec, kServer) ? add_servers : add_launcher)(spec, cluster, task, env);
}

void check_paddle(const JobSpec& spec, std::vector<FileError>& errors) {
  if (has_role(spec, kServer) && has_role(spec, kMaster))
    errors.push_back({"conflict", "", 0, "spec.roles.master", "a paddle job has a master or ps, not both",
                      "a master starts the servers through paddle.distributed.launch; a ps is a server itself"});
}

}  // namespace

const FrameworkRules kPaddle{
    .roles = kPaddleRoles, .collective = Collective::without_servers, .environment = add_paddle, .check = check_paddle};

}  // namespace dtrain::job
