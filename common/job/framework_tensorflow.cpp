// TensorFlow: which of its tasks must not run twice, and TF_CONFIG in the form that TFConfigClusterResolver and
// Estimator's RunConfig read. Rules: docs/frameworks.md.
#include <algorithm>
#include <array>
#include <vector>

#include "common/job/framework_roles.h"
#include "common/job/json_text.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr std::string_view kEvaluator = "evaluator";
// The shortest entry of a list of addresses: "1.2.3.4:20000", with quotes and comma.
constexpr std::uint64_t kShortestAddress = 16;

// Two instances of any of these would damage the training. Workers are not among them, except the first where no role leads.
constexpr auto kRoles = [] {
  auto roles = kUsualRoles;
  for (RoleRules& role : roles) {
    role.exclusive = !role.works;
    role.stands_in = role.works;
  }
  return roles;
}();

bool sees_evaluators(const JobSpec& spec, const TaskId& task) {
  switch (spec.policy.evaluator_in_cluster) {
    case EvaluatorInCluster::self: return task.role == kEvaluator;
    case EvaluatorInCluster::never: return false;
    case EvaluatorInCluster::always: return true;
  }
  return false;
}

std::string address_list(const std::vector<std::string>& addresses) {
  std::string out = "[";
  for (std::size_t i = 0; i < addresses.size(); ++i) out += (i > 0 ? "," : "") + json_text(addresses[i]);
  return out + "]";
}

std::string one_by_index(const TaskId& task, const TaskAddress& address) {
  return "{" + json_text(std::to_string(task.index)) + ":" + json_text(address.text()) + "}";
}

std::string task_object(const TaskId& task) {
  return "\"task\":{\"type\":" + json_text(task.role) + ",\"index\":" + std::to_string(task.index) + "}";
}

// By role: its value in "cluster".
using Cluster = std::map<std::string, std::string>;

Cluster whole_cluster(const JobSpec& spec, const ClusterView& view, const TaskId& self) {
  std::map<std::string, std::vector<std::string>> addresses;  // the view is ordered by role, then index
  for (const auto& [task, address] : view.tasks)
    if (task.role != kEvaluator || sees_evaluators(spec, self)) addresses[task.role].push_back(address.text());
  Cluster out;
  for (const auto& [role, list] : addresses) out[role] = address_list(list);
  return out;
}

// Only what a task must know in a job with a changing number of workers, so that a change restarts no other task.
Cluster sparse_cluster(const ClusterView& view, const TaskId& self, const TaskAddress& own) {
  Cluster out;
  if (self.role == "ps") {
    // A list gives the index by position, which is right for ps-0 only.
    out["ps"] = self.index == 0 ? address_list({own.text()}) : one_by_index(self, own);
    return out;
  }
  out["worker"] = one_by_index(self, own);
  std::vector<std::string> ps;
  for (const auto& [task, address] : view.tasks)
    if (task.role == "ps") ps.push_back(address.text());
  out["ps"] = address_list(ps);
  return out;
}

std::string cluster_object(const Cluster& cluster) {
  std::string out = "{\"cluster\":{";
  bool first = true;
  for (const auto& [role, value] : cluster) {
    if (!first) out += ",";
    first = false;
    out += json_text(role) + ":" + value;
  }
  return out + "},";
}

// A worker of a sparse cluster is given no other worker's address.
bool worker_scales_alone(const JobSpec& spec, const std::string& role) { return spec.policy.enable_dynamic_worker && role == "worker"; }

// What scripts written for TonY may read beside TF_CONFIG: TFRuntime.java and ApplicationMaster.java of its core. It counts the tasks for
// which it waits: all but servers.
constexpr std::string_view kVariablesOf = "variablesOf", kTony = "TonY";
constexpr std::array<std::string_view, 1> kOtherVariables{kTony};
constexpr std::array kTfOptions{OptionRule{kVariablesOf, kOtherVariables}};

void add_tony(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::map<std::string, std::string>& env) {
  std::map<std::string, std::vector<std::string>> addresses;
  std::uint32_t counted = 0;
  for (const auto& [id, address] : cluster.tasks) {
    addresses[id.role].push_back(address.text());
    counted += role_rules(spec.framework, id.role).serves ? 0 : 1;
  }
  std::string all;
  for (const auto& [role, list] : addresses) all += (all.empty() ? "{" : ",") + json_text(role) + ":" + address_list(list);
  env["CLUSTER_SPEC"] = all + "}";
  env["DISTRIBUTED_MODE"] = "GANG";
  env["JOB_NAME"] = task.role;
  env["TASK_INDEX"] = std::to_string(task.index);
  env["TASK_NUM"] = std::to_string(counted);
  env["SESSION_ID"] = std::to_string(cluster.generation > 0 ? cluster.generation - 1 : 0);
  if (deciding_task(spec) == task) env["IS_CHIEF"] = "true";
}

void add_tf_config(const JobSpec& spec, const ClusterView& cluster, const TaskId& task, std::map<std::string, std::string>& env) {
  if (auto config = tf_config(spec, cluster, task)) env["TF_CONFIG"] = std::move(*config);
  if (option_of(spec, kVariablesOf) == kTony && cluster.tasks.contains(task)) add_tony(spec, cluster, task, env);
}

void check(const JobSpec& spec, std::vector<FileError>& errors) {
  check_usual_roles(spec, errors);
  if (has_role(spec, "master") && has_role(spec, "evaluator"))
    errors.push_back({"conflict", "", 0, "spec.roles.evaluator", "TensorFlow takes no evaluator beside a master", "name the master chief"});
  if (spec.policy.enable_dynamic_worker && !option_of(spec, kVariablesOf).empty())
    errors.push_back({"conflict", "", 0, "spec.options." + std::string(kVariablesOf),
                      "names every task, so that workers cannot come and go with policy.enableDynamicWorker", "leave out one of them"});
  if (!spec.policy.enable_dynamic_worker && total_replicas(spec) <= limits::kTasksPerJob &&
      total_replicas(spec) * kShortestAddress > limits::kArgumentBytes)
    errors.push_back({"limit", "", 0, "spec.roles",
                      "TF_CONFIG with all addresses would have more than the " + std::to_string(limits::kArgumentBytes) +
                          " bytes that Linux takes in one variable",
                      "run fewer tasks, or set policy.enableDynamicWorker: true"});
}

void warn(const JobSpec& spec, std::vector<std::string>& warnings) {
  std::vector<std::string> usual;
  for (const RoleRules& role : kRoles) usual.emplace_back(role.name);
  std::sort(usual.begin(), usual.end());
  for (const auto& entry : spec.roles) {
    if (std::find(usual.begin(), usual.end(), entry.first) != usual.end()) continue;
    const std::string near = nearest(entry.first, usual);
    warnings.push_back("spec.roles." + entry.first + ": TensorFlow's strategies know " + one_of(usual) +
                       (near.empty() ? "" : "; did you mean " + near + "?"));
  }
  const auto evaluator = spec.roles.find(std::string(kEvaluator));
  if (evaluator != spec.roles.end() && evaluator->second.replicas > 1 && spec.policy.evaluator_in_cluster != EvaluatorInCluster::never)
    warnings.push_back(
        "spec.roles.evaluator: TensorFlow's strategies take one evaluator in a cluster, and fail in a task that sees more; "
        "policy.evaluatorInCluster: never shows none");
}

}  // namespace

std::optional<std::string> tf_config(const JobSpec& spec, const ClusterView& cluster, const TaskId& task) {
  const auto own = cluster.tasks.find(task);
  if (own == cluster.tasks.end() || cluster.tasks.size() == 1) return std::nullopt;
  const bool sparse = spec.policy.enable_dynamic_worker && (task.role == "worker" || task.role == "ps");
  if (sparse) return cluster_object(sparse_cluster(cluster, task, own->second)) + task_object(task) + "}";
  return cluster_object(whole_cluster(spec, cluster, task)) + task_object(task) + ",\"environment\":\"cloud\"}";
}

const FrameworkRules kTensorflow{.roles = kRoles,
                                 .options = kTfOptions,
                                 .collective = Collective::without_servers,
                                 .scales_alone = worker_scales_alone,
                                 .environment = add_tf_config,
                                 .warm = true,
                                 .check = check,
                                 .warn = warn};

}  // namespace dtrain::job
