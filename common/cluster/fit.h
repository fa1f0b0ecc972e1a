// Decides which hosts may have tasks of one role, and how many each can take: rules first (cordon, refusals,
// nodeSelector, avoidGpuHosts, images), then room.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/cluster/capacity.h"

namespace dtrain::cluster {

// Tasks of one role that are to be placed; they are all alike.
struct Demand {
  std::string role_name;
  const job::RoleSpec* role = nullptr;
  std::vector<std::size_t> tasks;     // their indices in the request
  std::uint32_t first_index = 0;      // of the first of them, for people
  std::vector<HostNumber> standing;   // hosts that have tasks of the role already, for anti-affinity
  bool rank = false;                  // a rank of a collective job, which wants to be near the others
  const Refusals* refused = nullptr;  // hosts that refuse the job; nullptr: none
  std::uint32_t count() const { return static_cast<std::uint32_t>(tasks.size()); }
};

// The rule that keeps a role off a host, whatever is free there.
enum class Exclusion : unsigned char { none, cordoned, refused, no_copy, selector, has_gpus, no_images };

// What a host lacks for one more task.
enum class Shortage : unsigned char { none, gpus, cpu, memory, ports };

// Larger numbers of tasks on one host are not distinguished: no job has as many.
inline constexpr std::uint32_t kSlotsCounted = 1u << 20;

class Fit {
 public:
  Fit(const Capacity& hosts, const Demand& demand, bool with_ports);

  const Demand& demand() const { return *demand_; }
  Exclusion exclusion(HostNumber h) const { return exclusions_[h]; }
  // Free GPUs on `h` of a model that the role takes.
  std::uint64_t gpus(const Capacity& now, HostNumber h) const {
    return demand_->role->resources.gpus == 0 ? 0 : now.room(h).gpus & now.gpus_of(h, demand_->role->resources.gpu_model);
  }
  // How many tasks of the role `h` can take, with all rules but anti-affinity.
  std::uint32_t slots(const Capacity& now, HostNumber h) const;
  Shortage shortage(const Capacity& now, HostNumber h) const;

  // Anti-affinity: all hosts of one group take only one task together. Without anti-affinity spaced() is false.
  bool spaced() const { return !groups_.empty(); }
  std::uint32_t group(HostNumber h) const { return groups_[h]; }
  std::uint32_t groups() const { return group_count_; }

 private:
  void exclude(const Capacity& hosts);
  void group(const Capacity& hosts);

  const Demand* demand_;
  bool with_ports_;
  std::vector<Exclusion> exclusions_;
  std::vector<std::uint32_t> groups_;
  std::uint32_t group_count_ = 0;
};

}  // namespace dtrain::cluster
