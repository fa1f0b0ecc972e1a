// What is free on all hosts, in a form that is cheap to copy and to search: placements are tried on copies, and what
// somebody holds is taken or given back in O(log hosts). Hosts are numbered in the order in which they were handed in,
// which also breaks ties. 10,000 hosts: some 320 kB for each copy, beside one table that all copies share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/cluster/host_capacity.h"
#include "common/cluster/ledger.h"
#include "common/cluster/state.h"

namespace dtrain::cluster {

using HostNumber = std::uint32_t;

// Free on one host. Negative: more is held than the host has (it lost something).
struct Room {
  std::int64_t cpu_millis = 0, memory_bytes = 0;
  std::uint64_t gpus = 0;   // bit i: gpus[i] of the host is free
  std::uint32_t tasks = 0;  // held here
  bool operator==(const Room&) const = default;
};

// Of hosts that take new tasks, added up: what asks for more than that fits nowhere.
struct RoomInAll {
  std::uint64_t cpu_millis = 0, memory_bytes = 0, gpus = 0;
  std::uint64_t most_cpu_millis = 0, most_memory_bytes = 0, most_gpus = 0;  // on one host
};

// What one job holds.
struct Holding {
  const job::JobSpec* spec = nullptr;
  const std::vector<TaskPlacement>* placements = nullptr;
};

class Capacity {
 public:
  explicit Capacity(std::vector<HostCapacity> hosts, PortRange ports = {});

  HostNumber size() const { return static_cast<HostNumber>(rooms_.size()); }
  const HostCapacity& host(HostNumber h) const { return table_->hosts[h]; }
  // New tasks may come to it.
  bool takes_tasks(HostNumber h) const { return host(h).schedulable && (copies_for_all_ || !host(h).no_copy); }
  // As if nothing ran: whoever has no copy of the log can get one.
  void give_copies_to_all() { copies_for_all_ = true; }
  const Room& room(HostNumber h) const { return rooms_[h]; }
  std::optional<HostNumber> find(const NodeId& id) const;
  PortRange port_range() const { return table_->ports; }
  RoomInAll in_all() const;
  // Of everything that stays as it is while jobs come and go: what fits an empty cluster of one shape fits any. The order of the hosts
  // does not count: it changes with who has a copy of the log.
  std::uint64_t shape() const { return table_->shape; }

  // What these placements of `spec` hold: taken, or free again. Hosts and roles that are not known hold nothing.
  void hold(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements);
  void release(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements);
  // The same for many jobs, at the price of one.
  void hold(const std::vector<Holding>& jobs) { change(jobs, true); }
  void release(const std::vector<Holding>& jobs) { change(jobs, false); }
  // `tasks` with `each` and the GPUs of `gpus`; count: -1 gives it back.
  void take(HostNumber h, const job::Resources& each, std::uint64_t gpus, std::int64_t tasks);

  // What is free both here and there. `other` is of the same hosts.
  void meet(const Capacity& other);

  // Hosts with one task address share a pool of ports.
  std::uint32_t pool(HostNumber h) const { return table_->pool[h]; }
  std::uint32_t pools() const { return static_cast<std::uint32_t>(free_ports_.size()); }
  std::int64_t free_ports(HostNumber h) const { return free_ports_[table_->pool[h]]; }
  // The lowest port above `after` that is neither taken nor resting.
  std::optional<std::uint16_t> next_free_port(HostNumber h, std::optional<std::uint16_t> after) const;
  void take_port(HostNumber h, std::uint16_t port);
  // So many fewer (or, below zero, more) are free at `h`: which ones is not yet said.
  void count_ports(HostNumber h, std::int64_t ports) { free_ports_[pool(h)] -= ports; }

  // GPUs of `h` whose model has `model` in its name, whether free or not; "": all.
  std::uint64_t gpus_of(HostNumber h, std::string_view model) const;
  std::uint64_t all_gpus(HostNumber h) const;

 private:
  struct GpuClass {
    std::uint32_t model = 0;  // in Table::models
    std::uint64_t gpus = 0;
  };
  struct Table {
    std::vector<HostCapacity> hosts;
    std::vector<HostNumber> by_id;
    std::vector<std::uint32_t> pool;
    std::vector<std::string> models;
    std::vector<GpuClass> classes;             // of host h: from first_class[h] up to first_class[h + 1]
    std::vector<std::uint32_t> first_class;
    PortRange ports;
    std::uint64_t shape = 0;
  };
  static std::shared_ptr<const Table> make_table(std::vector<HostCapacity> hosts, PortRange ports);
  void change(const std::vector<Holding>& jobs, bool held);
  bool in_range(std::uint16_t port) const { return port >= table_->ports.first && port <= table_->ports.last; }

  std::shared_ptr<const Table> table_;
  bool copies_for_all_ = false;
  std::vector<Room> rooms_;
  std::vector<std::int64_t> free_ports_;   // by pool
  std::vector<std::uint64_t> ports_;       // in use: pool << 16 | port, sorted
};

// Takes what the tasks of the ledger hold that have not ended.
void hold_used(const Ledger& ledger, Capacity& capacity);
// Adds to each host's ports in use those that rest until kPortRest after their use.
void add_resting_ports(const Ledger& ledger, std::vector<HostCapacity>& hosts);

}  // namespace dtrain::cluster
