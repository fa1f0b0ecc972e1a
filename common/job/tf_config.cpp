// TF_CONFIG, as TensorFlow's TFConfigClusterResolver and Estimator's RunConfig read it. Rules:
// docs/frameworks.md.
#include <vector>

#include "common/job/cluster_spec.h"
#include "common/job/json_text.h"

namespace dtrain::job {

namespace {

constexpr std::string_view kEvaluator = "evaluator";

bool sees_evaluators(const JobSpec& spec, const TaskId& task) {
  switch (spec.policy.evaluator_in_cluster) {
    case EvaluatorInCluster::self:
      return task.role == kEvaluator;
    case EvaluatorInCluster::never:
      return false;
    case EvaluatorInCluster::always:
      return true;
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

// Role -> what stands for it in "cluster".
using Cluster = std::map<std::string, std::string>;

Cluster whole_cluster(const JobSpec& spec, const ClusterView& view, const TaskId& self) {
  std::map<std::string, std::vector<std::string>> addresses;  // the view is ordered by role, then index
  for (const auto& [task, address] : view.tasks)
    if (task.role != kEvaluator || sees_evaluators(spec, self))
      addresses[task.role].push_back(address.text());
  Cluster out;
  for (const auto& [role, list] : addresses) out[role] = address_list(list);
  return out;
}

// Only what a task of a job with a changing number of workers has to know, so that a change restarts nobody
// else.
Cluster sparse_cluster(const ClusterView& view, const TaskId& self, const TaskAddress& own) {
  Cluster out;
  if (self.role == "ps") {
    // A list says the index by position: right for ps-0 only.
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

}  // namespace

std::optional<std::string> tf_config(const JobSpec& spec, const ClusterView& cluster, const TaskId& task) {
  const auto own = cluster.tasks.find(task);
  if (own == cluster.tasks.end() || cluster.tasks.size() == 1) return std::nullopt;
  const bool sparse = spec.policy.enable_dynamic_worker && (task.role == "worker" || task.role == "ps");
  if (sparse) return cluster_object(sparse_cluster(cluster, task, own->second)) + task_object(task) + "}";
  return cluster_object(whole_cluster(spec, cluster, task)) + task_object(task) +
         ",\"environment\":\"cloud\"}";
}

}  // namespace dtrain::job
