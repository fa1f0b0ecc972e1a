#include "common/node/kept_places.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "common/node/host_capacities.h"

namespace dtrain::node {

void KeptPlaces::reset() {
  booked_.clear();
  held_.clear();
}

void KeptPlaces::applied(std::uint64_t index) {
  std::erase_if(booked_, [&](const BookedPlaces& b) { return b.index <= index; });
  for (auto& [id, held] : held_)
    if (held.proposal <= index) held.proposal = 0;
}

void KeptPlaces::drop_unused() {
  if (held_.empty()) return;
  std::set<NodeId> there;
  for (const auto& host : host_capacities(c_))
    if (host.schedulable && !host.no_copy) there.insert(host.id);
  std::erase_if(held_, [&](const auto& entry) {
    const HeldPlaces& held = entry.second;
    const cluster::JobRecord* job = c_.ledger.find(entry.first);
    if (job == nullptr || is_final(job->state) || job->goal != cluster::Goal::run || job->generation != held.generation ||
        (!held.host.empty() && !c_.ledger.state().drained.contains(held.host)))
      return true;
    if (std::ranges::any_of(held.placements, [&](const auto& place) { return !there.contains(place.node); })) return true;
    if (held.proposal != 0) return false;
    if (held.whole) return !job->needs_generation;
    return job->needs_generation || std::ranges::none_of(held.placements, [&](const auto& place) {
             const auto t = job->tasks.find(place.task);
             return t != job->tasks.end() && (t->second.moving || t->second.lost);
           });
  });
}

const HeldPlaces* KeptPlaces::held_for(JobId id) const {
  const auto it = held_.find(id);
  return it == held_.end() ? nullptr : &it->second;
}

cluster::Capacity KeptPlaces::free(JobId except) const {
  std::vector<cluster::HostCapacity> hosts = host_capacities(c_);
  cluster::add_resting_ports(c_.ledger, hosts);
  cluster::Capacity free(std::move(hosts), task_ports());
  cluster::hold_used(c_.ledger, free);
  for (const BookedPlaces& b : booked_) free.hold(b.spec, b.placements);
  for (const auto& [id, held] : held_)
    if (id != except) free.hold(held.spec, held.placements);
  return free;
}

cluster::Capacity KeptPlaces::free_without(const cluster::JobRecord& job) const {
  cluster::Capacity left = free();
  std::vector<cluster::TaskPlacement> own;
  for (const auto& [id, t] : job.tasks)
    if (!t.ended) own.push_back(t.place);
  left.release(job.spec, own);
  for (const auto& place : own)
    if (const auto h = left.find(place.node); h && place.address.port != 0) left.take_port(*h, place.address.port);
  return left;
}

cluster::Capacity KeptPlaces::empty() const { return cluster::Capacity(host_capacities(c_), task_ports()); }

bool KeptPlaces::fits(JobId id, const job::JobSpec& spec, const std::vector<cluster::TaskPlacement>& placements) const {
  cluster::Capacity left = free(id);
  for (const auto& place : placements) {
    const auto h = left.find(place.node);
    if (!h || !left.takes_tasks(*h)) return false;
    const std::uint64_t before = left.room(*h).gpus;
    left.hold(spec, {place});
    const cluster::Room& room = left.room(*h);
    const auto gpus = static_cast<std::size_t>(std::popcount(before & ~room.gpus));
    if (room.cpu_millis < 0 || room.memory_bytes < 0 || gpus != place.gpus.size()) return false;
  }
  return true;
}

}  // namespace dtrain::node
