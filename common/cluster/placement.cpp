#include "common/cluster/placement.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/cluster/attempt.h"
#include "common/cluster/closeness.h"
#include "common/cluster/cluster_change.h"
#include "common/cluster/placement_reasons.h"
#include "common/cluster/placement_search.h"

namespace dtrain::cluster {
namespace {

// Tasks by role, in the order of roles.
std::vector<Demand> demands_of(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const Capacity& capacity,
                               const std::vector<TaskPlacement>& standing, const Refusals& refused) {
  std::map<std::string, Demand> by_role;
  for (std::size_t i = 0; i < tasks.size(); ++i) by_role[tasks[i].role].tasks.push_back(i);
  std::vector<Demand> demands;
  for (auto& [name, demand] : by_role) {
    demand.role_name = name;
    demand.role = &spec.roles.at(name);
    if (!refused.empty()) demand.refused = &refused;
    demand.first_index = tasks[demand.tasks.front()].index;
    demand.rank = job::is_collective(spec) && job::is_stateful(spec, {name, 0});
    for (const TaskPlacement& place : standing)
      if (const auto h = capacity.find(place.node); h && place.task.role == name) demand.standing.push_back(*h);
    demands.push_back(std::move(demand));
  }
  return demands;
}

std::vector<std::uint32_t> standing_by_host(const Capacity& capacity, const std::vector<TaskPlacement>& standing) {
  std::vector<std::uint32_t> count;
  if (!standing.empty()) count.resize(capacity.size(), 0);
  for (const TaskPlacement& place : standing)
    if (const auto h = capacity.find(place.node)) ++count[*h];
  return count;
}

// Roles with the least room for each of their tasks come first, because the others can go elsewhere.
std::vector<std::size_t> most_constrained_first(const Attempt& attempt, const std::vector<Fit>& fits) {
  struct Slack {
    std::uint64_t slots = 0, count = 0;
    std::size_t fit = 0;
  };
  std::vector<Slack> order;
  for (std::size_t f = 0; f < fits.size(); ++f) order.push_back({attempt.slots_in_all(f, kSlotsCounted), fits[f].demand().count(), f});
  std::stable_sort(order.begin(), order.end(), [](const Slack& a, const Slack& b) { return a.slots * b.count < b.slots * a.count; });
  std::vector<std::size_t> fit_order;
  for (const Slack& s : order) fit_order.push_back(s.fit);
  return fit_order;
}

// Returns the role that found no room; nullopt: all did.
std::optional<std::size_t> put_all(Attempt& attempt, const std::vector<Fit>& fits, const std::vector<std::size_t>& order,
                                   job::Placement wish) {
  std::vector<std::size_t> ranks, others;
  for (const std::size_t f : order) (fits[f].demand().rank ? ranks : others).push_back(f);
  if (wish == job::Placement::spread || ranks.empty()) {
    const HostOrder host_order = wish == job::Placement::spread ? HostOrder::spread : HostOrder::pack;
    for (const std::size_t f : order)
      if (!attempt.put(f, {host_order})) return f;
    return std::nullopt;
  }
  if (const auto failed = put_close(attempt, fits, ranks)) return failed;
  for (const std::size_t f : others)
    if (!attempt.put(f, {HostOrder::pack})) return f;
  return std::nullopt;
}

bool put_tight(Attempt& attempt, const std::vector<std::size_t>& order) {
  for (const std::size_t f : order)
    if (!attempt.put(f, {HostOrder::tight})) {
      attempt.back_to(0);
      return false;
    }
  return true;
}

std::vector<TaskPlacement> with_ports(const std::vector<TaskId>& tasks, const std::vector<Choice>& choices, const Capacity& capacity,
                                      bool ports) {
  std::vector<TaskPlacement> placements(tasks.size());
  std::map<std::uint32_t, std::uint16_t> last;  // by pool: the port given out last
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    TaskPlacement& place = placements[i];
    const HostNumber h = choices[i].host;
    place.task = tasks[i];
    place.node = capacity.host(h).id;
    place.address.host = capacity.host(h).task_address;
    for (std::size_t g = 0; g < std::min(capacity.host(h).gpus.size(), kGpusPerHost); ++g)
      if ((choices[i].gpus >> g & 1) != 0) place.gpus.push_back(capacity.host(h).gpus[g].index);
    if (!ports) continue;
    const auto given = last.find(capacity.pool(h));
    const auto port = capacity.next_free_port(h, given == last.end() ? std::nullopt : std::optional(given->second));
    place.address.port = port.value_or(0);  // there always is one: slots() counted them
    last[capacity.pool(h)] = place.address.port;
  }
  return placements;
}

}  // namespace

std::vector<TaskId> wanted_tasks(const job::JobSpec& spec) {
  std::vector<TaskId> tasks;
  for (const auto& [name, role] : spec.roles)
    for (std::uint32_t i = 0; i < role.replicas; ++i) tasks.push_back({name, i});
  return tasks;
}

Result<std::vector<TaskPlacement>> place(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const Capacity& capacity,
                                         const std::vector<TaskPlacement>& standing, const Refusals& refused) {
  const bool ports = needs_ports(spec);
  const std::vector<Demand> demands = demands_of(spec, tasks, capacity, standing, refused);
  std::vector<Fit> fits;
  fits.reserve(demands.size());
  for (const Demand& demand : demands) fits.emplace_back(capacity, demand, ports);
  Attempt attempt(capacity, fits, tasks.size(), ports, standing_by_host(capacity, standing));
  const std::vector<std::size_t> order = most_constrained_first(attempt, fits);
  if (const auto failed = put_all(attempt, fits, order, spec.policy.placement)) {
    const std::string reason = why_not(fits[*failed], *failed, attempt);  // judged by what the job's other roles left free
    attempt.back_to(0);
    const bool several = fits.size() > 1;
    if (!several || (!put_tight(attempt, order) && !search(attempt, fits))) return fail(ErrorCode::unavailable, reason);
  }
  return with_ports(tasks, attempt.choices(), capacity, ports);
}

bool may_fit(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const RoomInAll& free) {
  std::uint64_t cpu = 0, memory = 0, gpus = 0;
  const std::string* name = nullptr;
  const job::Resources* each = nullptr;
  for (const TaskId& task : tasks) {
    if (name == nullptr || *name != task.role) {
      name = &task.role;
      each = &spec.roles.at(task.role).resources;
      if (each->cpu_millis > free.most_cpu_millis || each->memory_bytes > free.most_memory_bytes || each->gpus > free.most_gpus)
        return false;
    }
    cpu += each->cpu_millis;
    memory += each->memory_bytes;
    gpus += each->gpus;
  }
  return cpu <= free.cpu_millis && memory <= free.memory_bytes && gpus <= free.gpus;
}

}  // namespace dtrain::cluster
