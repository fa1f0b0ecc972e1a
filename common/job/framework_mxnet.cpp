// MXNet with ps-lite: a scheduler, servers and workers. The variables are those of pkg/controller.v1/mxnet/mxnet.go of Kubeflow's
// training operator, releases 1.5 to 1.8. A node of ps-lite that comes back is not taken in again, so all begin anew.
#include "common/job/framework_roles.h"
#include "common/job/json_text.h"

namespace dtrain::job {

namespace {

constexpr std::string_view kScheduler = "scheduler", kServers = "server", kWorkers = "worker";

constexpr std::array kMxnetRoles{
    RoleRules{.name = kScheduler, .most = 1, .stands_in = true, .stateful = true, .rank = true, .start = 0, .order = 0},
    RoleRules{.name = kServers,
              .serves = true,
              .ends = false,
              .stateful = true,
              .rank = true,
              .start = 1,
              .order = 1,
              .avoid_gpu_hosts = AvoidGpuHosts::prefer},
    RoleRules{.name = kWorkers, .works = true, .rank = true, .order = 2},
};

// The role's entry in `labels` of MX_CONFIG.
constexpr std::array kMxnetOptions{OptionRule{"schedulerLabel"}, OptionRule{"serverLabel"}, OptionRule{"workerLabel"}};

std::string mx_config(const JobSpec& spec, const ClusterView& view, const TaskId& self) {
  std::map<std::string, std::string> cluster, labels;
  for (const auto& [task, address] : view.tasks) {
    std::string& list = cluster[task.role];
    list +=
        (list.empty() ? "" : ",") + std::string("{\"url\":") + json_text(address.host) + ",\"port\":" + std::to_string(address.port) + "}";
  }
  for (const auto& entry : spec.roles) labels[entry.first] = json_text(option_of(spec, entry.first + "Label"));
  std::string roles, names;
  for (const auto& [role, list] : cluster) roles += (roles.empty() ? "" : ",") + json_text(role) + ":[" + list + "]";
  for (const auto& [role, label] : labels) names += (names.empty() ? "" : ",") + json_text(role) + ":" + label;
  return "{\"cluster\":{" + roles + "},\"labels\":{" + names + "},\"task\":{\"type\":" + json_text(self.role) +
         ",\"index\":" + std::to_string(self.index) + "}}";
}

std::string count_of(const ClusterView& cluster, std::string_view role) {
  std::size_t count = 0;
  for (const auto& entry : cluster.tasks) count += entry.first.role == role ? 1 : 0;
  return std::to_string(count);
}

void add_mxnet(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::map<std::string, std::string>& env) {
  const auto own = cluster.tasks.find(task), root = cluster.tasks.find(TaskId{std::string(kScheduler), 0});
  if (own == cluster.tasks.end() || root == cluster.tasks.end()) return;
  env["DMLC_PS_ROOT_URI"] = root->second.host;
  env["DMLC_PS_ROOT_PORT"] = std::to_string(root->second.port);
  env["DMLC_NODE_HOST"] = own->second.host;
  env["DMLC_NUM_SERVER"] = count_of(cluster, kServers);
  env["DMLC_NUM_WORKER"] = count_of(cluster, kWorkers);
  env["DMLC_ROLE"] = task.role;
  if (task.role == kWorkers) env["DMLC_WORKER_ID"] = std::to_string(task.index);
  env["MX_CONFIG"] = mx_config(spec, cluster, task);
}

void check_mxnet(const JobSpec& spec, std::vector<FileError>& errors) {
  for (const std::string_view role : {kScheduler, kServers, kWorkers})
    if (!has_role(spec, role))
      errors.push_back(
          {"missing", "", 0, "spec.roles", "an mxnet job needs a " + std::string(role), "its roles are scheduler, server and worker"});
}

}  // namespace

const FrameworkRules kMxnet{
    .roles = kMxnetRoles, .options = kMxnetOptions, .collective = Collective::always, .environment = add_mxnet, .check = check_mxnet};

}  // namespace dtrain::job
