#include "common/cluster/placement.h"

#include <algorithm>
#include <optional>

#include "common/cluster/cluster_change.h"

namespace dtrain::cluster {
namespace {

HostCapacity* find_host(std::vector<HostCapacity>& hosts, const NodeId& id) {
  const auto it = std::find_if(hosts.begin(), hosts.end(), [&](const HostCapacity& h) { return h.id == id; });
  return it == hosts.end() ? nullptr : &*it;
}

std::uint32_t free_gpus(const HostCapacity& host, const std::string& model) {
  return static_cast<std::uint32_t>(std::count_if(host.gpus.begin(), host.gpus.end(), [&](const auto& g) {
    return g.free && (model.empty() || g.model.find(model) != std::string::npos);
  }));
}

// Why `role` cannot go to `host` now; "" when it can. `permanent` words come first: they name what never will
// fit.
std::string obstacle(const job::RoleSpec& role, const std::string& role_name, const HostCapacity& host,
                     const std::map<std::string, std::set<NodeId>>& used_hosts) {
  for (const auto& [key, value] : role.node_selector) {
    const auto label = host.labels.find(key);
    if (label == host.labels.end() || label->second != value)
      return "needs a host with label " + key + "=" + value + ", " + host.name + " has not";
  }
  if (role.avoid_gpu_hosts == job::AvoidGpuHosts::require && !host.gpus.empty())
    return "avoids hosts with GPUs, " + host.name + " has " + std::to_string(host.gpus.size());
  if (role.anti_affinity == "host") {
    const auto used = used_hosts.find(role_name);
    if (used != used_hosts.end() && used->second.contains(host.id))
      return "needs a host of its own for each task (antiAffinity: host), " + host.name + " has one already";
  }
  const auto& want = role.resources;
  if (want.gpus > 0) {
    const std::uint32_t free = free_gpus(host, want.gpu_model);
    if (free < want.gpus)
      return "needs " + std::to_string(want.gpus) + (want.gpu_model.empty() ? "" : " " + want.gpu_model) +
             (want.gpus == 1 ? " GPU" : " GPUs") + " on one host, " + std::to_string(free) + " free on " +
             host.name;
  }
  if (host.cpu_used + want.cpu_millis > host.cpu_millis)
    return "needs " + std::to_string(want.cpu_millis) + "m CPU, " +
           std::to_string(host.cpu_millis - std::min(host.cpu_used, host.cpu_millis)) + "m free on " +
           host.name;
  if (host.memory_used + want.memory_bytes > host.memory_bytes)
    return "needs " + std::to_string(want.memory_bytes >> 20) + " MiB memory, " +
           std::to_string((host.memory_bytes - std::min(host.memory_used, host.memory_bytes)) >> 20) +
           " MiB free on " + host.name;
  return "";
}

// One task's share of its host is taken.
void hold(const job::JobSpec& spec, const TaskPlacement& place, std::vector<HostCapacity>& hosts) {
  HostCapacity* host = find_host(hosts, place.node);
  const auto role = spec.roles.find(place.task.role);
  if (host == nullptr || role == spec.roles.end()) return;
  host->cpu_used += role->second.resources.cpu_millis;
  host->memory_used += role->second.resources.memory_bytes;
  host->tasks += 1;
  if (place.address.port != 0) host->ports_in_use.insert(place.address.port);
  for (const std::uint32_t index : place.gpus)
    for (auto& gpu : host->gpus)
      if (gpu.index == index) gpu.free = false;
}

// The lowest port that is neither taken nor resting; the range is walked in order so that runs are
// repeatable.
std::optional<std::uint16_t> take_port(HostCapacity& host, PortRange range) {
  for (std::uint32_t port = range.first; port <= range.last; ++port) {
    if (host.ports_in_use.insert(static_cast<std::uint16_t>(port)).second)
      return static_cast<std::uint16_t>(port);
  }
  return std::nullopt;
}

}  // namespace

void subtract_used(const Ledger& ledger, std::vector<HostCapacity>& hosts) {
  const LedgerState& state = ledger.state();
  for (auto& host : hosts) {
    const auto resting = state.ports.find(host.id);
    if (resting == state.ports.end()) continue;
    for (const auto& [port, used] : resting->second)
      if (state.elapsed - used <= kPortRest) host.ports_in_use.insert(port);
  }
  for (const auto& [id, job] : state.jobs)
    for (const auto& [task, record] : job.tasks)
      if (!record.ended) hold(job.spec, record.place, hosts);
}

void book(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements,
          std::vector<HostCapacity>& hosts) {
  for (const auto& place : placements) hold(spec, place, hosts);
}

Result<std::vector<TaskPlacement>> place(const job::JobSpec& spec, const std::vector<TaskId>& tasks,
                                         std::vector<HostCapacity> hosts, PortRange ports) {
  std::vector<TaskPlacement> placements;
  std::map<std::string, std::set<NodeId>> used_hosts;
  const bool with_ports = needs_ports(spec);
  for (const TaskId& task : tasks) {
    const job::RoleSpec& role = spec.roles.at(task.role);
    HostCapacity* best = nullptr;
    std::string why = "no host is known";
    for (auto& host : hosts) {
      std::string obstacle_here = obstacle(role, task.role, host, used_hosts);
      if (!obstacle_here.empty()) {
        why = std::move(obstacle_here);
        continue;
      }
      const auto score = [&](const HostCapacity& h) {
        const bool avoided = role.avoid_gpu_hosts == job::AvoidGpuHosts::prefer && !h.gpus.empty();
        const std::int64_t load = h.tasks;
        return std::pair(avoided, spec.policy.placement == job::Placement::spread ? load : -load);
      };
      if (best == nullptr || score(host) < score(*best)) best = &host;
    }
    if (best == nullptr) return fail(ErrorCode::unavailable, task.text() + " " + why);

    TaskPlacement p;
    p.task = task;
    p.node = best->id;
    p.address.host = best->task_address;
    if (with_ports) {
      const auto port = take_port(*best, ports);
      if (!port)
        return fail(ErrorCode::unavailable, task.text() + " needs a port, all of " +
                                                std::to_string(ports.first) + "-" +
                                                std::to_string(ports.last) + " on " + best->name +
                                                " are in use or were within two minutes");
      p.address.port = *port;
    }
    for (std::uint32_t taken = 0; auto& gpu : best->gpus) {
      if (taken == role.resources.gpus) break;
      if (!gpu.free || (!role.resources.gpu_model.empty() &&
                        gpu.model.find(role.resources.gpu_model) == std::string::npos))
        continue;
      gpu.free = false;
      p.gpus.push_back(gpu.index);
      ++taken;
    }
    best->cpu_used += role.resources.cpu_millis;
    best->memory_used += role.resources.memory_bytes;
    best->tasks += 1;
    used_hosts[task.role].insert(best->id);
    placements.push_back(std::move(p));
  }
  return placements;
}

}  // namespace dtrain::cluster
