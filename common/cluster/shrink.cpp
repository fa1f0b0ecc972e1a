#include "common/cluster/shrink.h"

#include <algorithm>

#include "common/cluster/job_transition.h"

namespace dtrain::cluster {
namespace {

Sizes fewest(const JobRecord& job, bool waited, bool in_parts, std::uint32_t version) {
  Sizes sizes;
  for (const auto& [name, role] : job.spec.roles) {
    // A spec that was never validated may have no minimum.
    const bool said = role.min_replicas != 0 && role.min_replicas < wanted_replicas(job, name);
    const std::uint32_t least = said ? role.min_replicas : in_parts ? 1 : role.replicas;
    sizes[name] = waited || in_parts ? std::min(least, role.replicas) : role.replicas;
  }
  for (const auto& [id, t] : job.tasks)
    if (const auto size = sizes.find(id.role);
        size != sizes.end() && ((t.completed && !begins_with_its_gang(job, id, version)) || t.given_up))
      size->second = std::max(size->second, id.index + 1);
  std::erase_if(sizes, [&](const auto& size) { return size.second >= wanted_replicas(job, size.first); });
  return sizes;
}

// A job that was preempted while it ran with fewer tasks than wanted had no room for all of them before: if it waited
// for that, it might never run again.
bool goes_on(const JobRecord& job) { return job.run_started || (job.preempted.by != 0 && !job.shrunk.empty()); }

}  // namespace

std::uint32_t wanted_replicas(const JobRecord& job, const std::string& role) {
  const auto whole = job.shrunk.find(role);
  if (whole != job.shrunk.end()) return whole->second;
  const auto now = job.spec.roles.find(role);
  return now == job.spec.roles.end() ? 0 : now->second.replicas;
}

job::JobSpec whole_spec(const JobRecord& job) {
  job::JobSpec spec = job.spec;
  for (auto& [name, role] : spec.roles) role.replicas = wanted_replicas(job, name);
  return spec;
}

std::vector<TaskId> whole_tasks(const JobRecord& job) {
  std::vector<TaskId> tasks;
  for (const auto& [name, role] : job.spec.roles)
    for (std::uint32_t i = 0; i < wanted_replicas(job, name); ++i) tasks.push_back({name, i});
  return tasks;
}

bool begins_with_its_gang(const JobRecord& job, const TaskId& task, std::uint32_t version) {
  return version >= 3 && job::is_collective(job.spec) && job::is_rank_role(job.spec, task.role);
}

bool begins_in_parts(const JobRecord& job, std::uint32_t version) { return !job.spec.policy.gang && version >= 2; }

Sizes fewest_tasks(const JobRecord& job, bool waited, std::uint32_t version) {
  const bool in_parts = begins_in_parts(job, version);
  return in_parts || goes_on(job) ? fewest(job, waited, in_parts, version) : Sizes{};
}

bool may_shrink(const JobRecord& job, std::uint32_t version) {
  return fewest_tasks(job, true, version) != fewest_tasks(job, false, version);
}

Sizes sizes_of(const JobRecord& job, const std::vector<TaskPlacement>& placements) {
  Sizes sizes;
  for (const auto& [name, role] : job.spec.roles) {
    const auto placed = static_cast<std::uint32_t>(
        std::ranges::count(placements, name, [](const TaskPlacement& place) -> const std::string& { return place.task.role; }));
    if (placed < wanted_replicas(job, name)) sizes[name] = placed;
  }
  return sizes;
}

bool may_have(const JobRecord& job, const Sizes& sizes, const std::vector<TaskPlacement>& placements, std::uint32_t version) {
  if (sizes.empty()) return true;
  const Sizes least = fewest_tasks(job, true, version);
  for (const auto& [name, size] : sizes) {
    const auto fewest = least.find(name);
    if (fewest == least.end() || size < fewest->second || size >= wanted_replicas(job, name)) return false;
  }
  return sizes_of(job, placements) == sizes && std::ranges::all_of(placements, [&](const TaskPlacement& place) {
           const auto size = sizes.find(place.task.role);
           return size == sizes.end() || place.task.index < size->second;
         });
}

std::string runs_with(const JobRecord& job) {
  if (!can_leave(job)) return "";
  std::string text;
  for (const auto& [name, whole] : job.shrunk)
    text += (text.empty() ? "runs with " : ", ") + std::to_string(job.spec.roles.at(name).replicas) + " of " + std::to_string(whole) + " " +
            name;
  return text;
}

}  // namespace dtrain::cluster
