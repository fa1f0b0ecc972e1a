#include "common/job/job_spec.h"

#include <algorithm>
#include <limits>

#include "common/wire/codec.h"

namespace dtrain::job {

namespace {

bool has_leader_role(const JobSpec& spec) {
  return has_role(spec, "chief") || has_role(spec, "master");
}

bool is_rank_role(std::string_view role) {
  return role == "chief" || role == "master" || role == "worker";
}

std::uint64_t rank_count(const JobSpec& spec) {
  std::uint64_t ranks = 0;
  for (const auto& [name, role] : spec.roles)
    if (is_rank_role(name)) ranks += role.replicas;
  return ranks;
}

}  // namespace

bool same_content(const std::string& a, const std::string& b) {
  if (a == b) return true;
  auto one = wire::decode<JobSpec>(a);
  const auto other = wire::decode<JobSpec>(b);
  if (!one || !other || one->package_content.empty() || one->package_content != other->package_content) return false;
  one->package_digest = other->package_digest;
  return wire::encode(*one) == wire::encode(*other);
}

std::uint32_t total_replicas(const JobSpec& spec) {
  std::uint64_t sum = 0;  // cannot overflow: the codec bounds the number of roles, validate() the sum
  for (const auto& entry : spec.roles) sum += entry.second.replicas;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, std::numeric_limits<std::uint32_t>::max()));
}

bool has_role(const JobSpec& spec, std::string_view role) {
  return spec.roles.contains(std::string(role));
}

bool is_collective(const JobSpec& spec) {
  switch (spec.framework) {
    case Framework::tensorflow:
      return !has_role(spec, "ps") && rank_count(spec) > 1;
    case Framework::pytorch:
    case Framework::mpi:
    case Framework::horovod:
    case Framework::xgboost:
    case Framework::paddle:
    case Framework::jax:
      return rank_count(spec) > 1;
    case Framework::mxnet:  // parameter servers of its own
    case Framework::generic:
      return false;
  }
  return false;
}

bool is_exclusive(const JobSpec& spec, const TaskId& task) {
  const auto role = spec.roles.find(task.role);
  if (role == spec.roles.end()) return false;
  if (role->second.exclusive) return true;
  return spec.framework == Framework::tensorflow && task.role == "worker" && task.index == 0 &&
         !has_leader_role(spec);
}

bool is_stateful(const JobSpec& spec, const TaskId& task) {
  if (task.role == "ps" || task.role == "chief" || task.role == "master") return true;
  return is_collective(spec) && is_rank_role(task.role);
}

bool wants_lease(const JobSpec& spec, const TaskId& task) {
  const auto role = spec.roles.find(task.role);
  if (role == spec.roles.end() || role->second.on_disconnect == OnDisconnect::keep) return false;
  return is_stateful(spec, task) || is_exclusive(spec, task);
}

std::optional<TaskId> deciding_task(const JobSpec& spec) {
  for (const char* role : {"chief", "master"})
    if (has_role(spec, role)) return TaskId{role, 0};
  const bool by_worker_0 =
      spec.framework == Framework::tensorflow && spec.policy.success_policy == SuccessPolicy::by_framework;
  if (by_worker_0 && has_role(spec, "worker")) return TaskId{"worker", 0};
  return std::nullopt;
}

}  // namespace dtrain::job
