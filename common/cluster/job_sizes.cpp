// The number of tasks with which a job runs: fewer than wanted if there is no room, and more again later (shrink.h).
#include <algorithm>

#include "common/cluster/job_transition.h"

namespace dtrain::cluster {

void JobTransition::set_size(const std::string& role, std::uint32_t size, std::uint32_t whole) {
  std::uint32_t& replicas = job_.spec.roles.at(role).replicas;
  if (size != replicas)
    ledger_.add_event(wall_, job_.id, size < replicas ? "job.shrunk" : "job.grown", job_.spec.name,
                      size < whole ? "there is no room for more" : "",
                      {{"job", job_.spec.name},
                       {"generation", std::to_string(job_.generation)},
                       {"role", role},
                       {"replicas", std::to_string(size)},
                       {"wanted", std::to_string(whole)}});
  replicas = size;
  if (size < whole) job_.shrunk[role] = whole;
  else job_.shrunk.erase(role);
}

void JobTransition::resize(const Sizes& sizes) {
  for (const auto& [name, whole] : std::map(job_.shrunk))
    if (!sizes.contains(name)) set_size(name, whole, whole);
  for (const auto& [name, size] : sizes)
    if (job_.spec.roles.contains(name)) set_size(name, size, wanted_replicas(job_, name));
}

void JobTransition::grow(const std::vector<TaskPlacement>& more) {
  for (const auto& [name, whole] : std::map(job_.shrunk)) {
    std::uint32_t size = job_.spec.roles.at(name).replicas;
    for (const TaskPlacement& place : more)
      if (place.task.role == name && place.task.index < whole) size = std::max(size, place.task.index + 1);
    if (size != job_.spec.roles.at(name).replicas) set_size(name, size, whole);
  }
}

bool JobTransition::wanted(const TaskId& id) const {
  const auto role = job_.spec.roles.find(id.role);
  return role != job_.spec.roles.end() && id.index < role->second.replicas;
}

void JobTransition::drop_scaled_away() {
  for (auto it = job_.tasks.begin(); it != job_.tasks.end();) {
    if (wanted(it->first) || !it->second.ended) {
      ++it;
      continue;
    }
    job_.former_tasks[it->first] = it->second.attempt;
    it = job_.tasks.erase(it);
  }
}

}  // namespace dtrain::cluster
