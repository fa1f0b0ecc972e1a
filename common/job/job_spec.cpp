#include "common/job/job_spec.h"

#include <algorithm>
#include <limits>

#include "common/job/framework.h"
#include "common/job/templates.h"
#include "common/wire/codec.h"

namespace dtrain::job {

namespace {

// Task 0 of the job's first role for which the rule holds.
std::optional<TaskId> first_with(const JobSpec& spec, bool RoleRules::*rule) {
  for (const RoleRules& role : rules_of(spec.framework).roles)
    if (role.*rule && has_role(spec, role.name)) return TaskId{std::string(role.name), 0};
  return std::nullopt;
}

}  // namespace

const RoleOverride* override_of(const RoleSpec& role, std::uint32_t index) {
  const auto found = std::ranges::find_if(role.overrides, [&](const auto& one) { return one.first <= index && index <= one.last; });
  return found == role.overrides.end() ? nullptr : &*found;
}

const std::vector<std::string>& command_of(const RoleSpec& role, std::uint32_t index) {
  const RoleOverride* differs = override_of(role, index);
  return differs != nullptr && !differs->command.empty() ? differs->command : role.command;
}

std::uint32_t since_version(const JobSpec& spec) {
  const auto later = [](const auto& env) {
    return std::ranges::any_of(env, [](const auto& entry) { return has_later_template(entry.second); });
  };
  const bool any = later(spec.env) || std::ranges::any_of(spec.roles, [&](const auto& entry) {
                     return later(entry.second.env) || std::ranges::any_of(entry.second.command, has_later_template);
                   });
  return any ? 3 : 1;
}

std::string image_of(const JobSpec& spec) {
  const auto at = std::ranges::find_if(spec.roles, [](const auto& entry) { return !entry.second.image.empty(); });
  return at == spec.roles.end() ? "" : at->second.image;
}

bool same_content(const std::string& a, const std::string& b) {
  if (a == b) return true;
  auto one = wire::decode<JobSpec>(a);
  const auto other = wire::decode<JobSpec>(b);
  if (!one || !other || one->package_content.empty() || one->package_content != other->package_content) return false;
  one->package_digest = other->package_digest;
  return wire::encode(*one) == wire::encode(*other);
}

bool looks_for(const CheckpointSpec& spec, transfer::FormatId format) {
  return spec.format == CheckpointFormat{} || spec.format == only(format);
}

std::uint32_t total_replicas(const JobSpec& spec) {
  std::uint64_t sum = 0;  // cannot overflow: the codec bounds the number of roles, validate() the sum
  for (const auto& entry : spec.roles) sum += entry.second.replicas;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(sum, std::numeric_limits<std::uint32_t>::max()));
}

bool has_role(const JobSpec& spec, std::string_view role) { return spec.roles.contains(std::string(role)); }

const std::string& work_dir_of(const JobSpec& spec, const std::string& role) {
  const auto found = spec.roles.find(role);
  return found == spec.roles.end() || found->second.work_dir.empty() ? spec.work_dir : found->second.work_dir;
}

bool is_rank_role(const JobSpec& spec, std::string_view role) {
  const RoleRules& rules = role_rules(spec.framework, role);
  return rules.rank || (spec.policy.collective && (rules.ends || rules.serves));
}

bool is_collective(const JobSpec& spec) {
  const Collective when = rules_of(spec.framework).collective;
  if (when == Collective::never && !spec.policy.collective) return false;
  std::uint64_t ranks = 0;
  for (const auto& [name, role] : spec.roles) {
    if (role_rules(spec.framework, name).serves && when == Collective::without_servers && !spec.policy.collective) return false;
    if (is_rank_role(spec, name)) ranks += std::uint64_t{role.replicas} * std::max(role.nproc_per_node, 1u);
  }
  return ranks > 1;
}

bool is_exclusive(const JobSpec& spec, const TaskId& task) {
  const auto role = spec.roles.find(task.role);
  if (role == spec.roles.end()) return false;
  if (role->second.exclusive) return true;
  return task.index == 0 && role_rules(spec.framework, task.role).stands_in && !first_with(spec, &RoleRules::leads);
}

bool is_stateful(const JobSpec& spec, const TaskId& task) {
  const RoleRules& rules = role_rules(spec.framework, task.role);
  if (rules.stateful) return true;
  // A rank that is alone begins again from the newest checkpoint, too, which only a new generation is told of.
  const bool restores = rules_of(spec.framework).collective == Collective::always && spec.checkpoint;
  return is_rank_role(spec, task.role) && (restores || is_collective(spec));
}

bool wants_lease(const JobSpec& spec, const TaskId& task) {
  const auto role = spec.roles.find(task.role);
  return role != spec.roles.end() && role->second.on_disconnect != OnDisconnect::keep && must_not_run_twice(spec, task);
}

bool must_not_run_twice(const JobSpec& spec, const TaskId& task) {
  const auto role = spec.roles.find(task.role);
  const OnDisconnect when = role == spec.roles.end() ? OnDisconnect::by_class : role->second.on_disconnect;
  return when == OnDisconnect::freeze || is_exclusive(spec, task) || (when != OnDisconnect::replace && is_stateful(spec, task));
}

std::optional<TaskId> deciding_task(const JobSpec& spec) {
  auto leader = first_with(spec, &RoleRules::leads);
  if (!leader && spec.policy.success_policy == SuccessPolicy::by_framework) leader = first_with(spec, &RoleRules::stands_in);
  return leader;
}

}  // namespace dtrain::job
