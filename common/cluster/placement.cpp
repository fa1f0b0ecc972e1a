#include "common/cluster/placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/cluster/attempt.h"
#include "common/cluster/closeness.h"
#include "common/cluster/cluster_change.h"
#include "common/cluster/placement_reasons.h"
#include "common/cluster/placement_search.h"
#include "common/job/framework.h"

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

using LastPorts = std::map<std::uint32_t, std::uint16_t>;  // by pool: the port given out last

std::optional<std::uint16_t> port_after_last(const Capacity& capacity, HostNumber h, const LastPorts& last) {
  const auto given = last.find(capacity.pool(h));
  return capacity.next_free_port(h, given == last.end() ? std::nullopt : std::optional(given->second));
}

// The lowest port that is free on all of these hosts; none where two of them share their ports.
std::optional<std::uint16_t> port_of_all(const Capacity& capacity, const std::vector<HostNumber>& hosts, const LastPorts& last) {
  std::set<std::uint32_t> pools;
  std::optional<std::uint16_t> port;
  for (const HostNumber h : hosts) {
    const auto own = pools.insert(capacity.pool(h)).second ? port_after_last(capacity, h, last) : std::nullopt;
    if (!own) return std::nullopt;
    port = std::max(port.value_or(*own), *own);
  }
  for (bool all = false; port && !all;) {
    all = true;
    for (const HostNumber h : hosts) {
      const auto next = capacity.next_free_port(h, static_cast<std::uint16_t>(*port - 1));
      all = all && next == port;
      if (!next) return std::nullopt;
      port = next;
    }
  }
  return port;
}

std::vector<TaskPlacement> with_ports(const job::JobSpec& spec, const std::vector<TaskId>& tasks, const std::vector<Choice>& choices,
                                      const Capacity& capacity, bool ports) {
  std::vector<TaskPlacement> placements(tasks.size());
  LastPorts last;
  std::map<std::string, std::vector<std::size_t>> together;  // by role: tasks that get one port
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    TaskPlacement& place = placements[i];
    const HostNumber h = choices[i].host;
    place.task = tasks[i];
    place.node = capacity.host(h).id;
    place.address.host = capacity.host(h).task_address;
    for (std::size_t g = 0; g < std::min(capacity.host(h).gpus.size(), kGpusPerHost); ++g)
      if ((choices[i].gpus >> g & 1) != 0) place.gpus.push_back(capacity.host(h).gpus[g].index);
    if (!ports) continue;
    if (job::role_rules(spec.framework, tasks[i].role).one_port) {
      together[tasks[i].role].push_back(i);
      continue;
    }
    place.address.port = port_after_last(capacity, h, last).value_or(0);  // there always is one: slots() counted them
    last[capacity.pool(h)] = place.address.port;
  }
  for (const auto& role : together) {
    std::vector<HostNumber> hosts;
    for (const std::size_t i : role.second) hosts.push_back(choices[i].host);
    const auto common = port_of_all(capacity, hosts, last);
    for (const std::size_t i : role.second) {
      const std::uint16_t port = common ? *common : port_after_last(capacity, choices[i].host, last).value_or(0);
      placements[i].address.port = last[capacity.pool(choices[i].host)] = port;
    }
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
  return with_ports(spec, tasks, attempt.choices(), capacity, ports);
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
