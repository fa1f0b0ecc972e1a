#include "common/cluster/fit.h"

#include <algorithm>
#include <bit>
#include <map>

#include "common/job/host_labels.h"

namespace dtrain::cluster {
namespace {

std::uint64_t times(std::int64_t free, std::uint64_t each) {
  if (each == 0) return kSlotsCounted;
  return free <= 0 ? 0 : static_cast<std::uint64_t>(free) / each;
}

bool has_labels(const HostCapacity& host, const std::map<std::string, std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    const auto it = host.labels.find(label.first);
    if (it == host.labels.end()) return label.first == job::kHostnameLabel && label.second == host.name;
    return it->second == label.second;
  });
}

}  // namespace

Fit::Fit(const Capacity& hosts, const Demand& demand, bool with_ports)
    : demand_(&demand), with_ports_(with_ports), exclusions_(hosts.size(), Exclusion::none) {
  exclude(hosts);
  if (demand.role->anti_affinity != "none") group(hosts);
}

void Fit::exclude(const Capacity& hosts) {
  const job::RoleSpec& role = *demand_->role;
  for (HostNumber h = 0; h < hosts.size(); ++h) {
    const HostCapacity& host = hosts.host(h);
    if (!host.schedulable) exclusions_[h] = Exclusion::cordoned;
    else if (demand_->refused != nullptr && demand_->refused->contains(host.id)) exclusions_[h] = Exclusion::refused;
    else if (!role.node_selector.empty() && !has_labels(host, role.node_selector)) exclusions_[h] = Exclusion::selector;
    else if (role.avoid_gpu_hosts == job::AvoidGpuHosts::require && !host.gpus.empty()) exclusions_[h] = Exclusion::has_gpus;
    else if (!role.image.empty() && !host.runs_images) exclusions_[h] = Exclusion::no_images;
    else if (!hosts.takes_tasks(h)) exclusions_[h] = Exclusion::no_copy;
  }
}

// Hosts without the label form one group, as if its value were empty.
void Fit::group(const Capacity& hosts) {
  groups_.resize(hosts.size());
  if (demand_->role->anti_affinity == "host") {
    for (HostNumber h = 0; h < hosts.size(); ++h) groups_[h] = h;
    group_count_ = hosts.size();
    return;
  }
  std::map<std::string_view, std::uint32_t> values;
  for (HostNumber h = 0; h < hosts.size(); ++h) {
    const auto& labels = hosts.host(h).labels;
    const auto it = labels.find(demand_->role->anti_affinity);
    const std::string_view value = it == labels.end() ? std::string_view() : it->second;
    groups_[h] = values.try_emplace(value, static_cast<std::uint32_t>(values.size())).first->second;
  }
  group_count_ = static_cast<std::uint32_t>(values.size());
}

std::uint32_t Fit::slots(const Capacity& now, HostNumber h) const {
  if (exclusions_[h] != Exclusion::none) return 0;
  const job::Resources& each = demand_->role->resources;
  const Room& room = now.room(h);
  std::uint64_t most = std::min(times(room.cpu_millis, each.cpu_millis), times(room.memory_bytes, each.memory_bytes));
  if (each.gpus > 0) most = std::min<std::uint64_t>(most, static_cast<std::uint32_t>(std::popcount(gpus(now, h))) / each.gpus);
  if (with_ports_) most = std::min(most, times(now.free_ports(h), 1));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, kSlotsCounted));
}

Shortage Fit::shortage(const Capacity& now, HostNumber h) const {
  const job::Resources& each = demand_->role->resources;
  const Room& room = now.room(h);
  if (each.gpus > static_cast<std::uint32_t>(std::popcount(gpus(now, h)))) return Shortage::gpus;
  if (times(room.cpu_millis, each.cpu_millis) == 0) return Shortage::cpu;
  if (times(room.memory_bytes, each.memory_bytes) == 0) return Shortage::memory;
  if (with_ports_ && now.free_ports(h) <= 0) return Shortage::ports;
  return Shortage::none;
}

}  // namespace dtrain::cluster
