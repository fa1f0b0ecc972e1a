// What is free on all hosts, in a form that is cheap to copy and to search: placements are tried on copies, and
// resources are taken or given back in O(log hosts). Hosts are numbered in the order given, which also breaks ties.
// With 10,000 hosts a copy takes some 320 kB, besides one table that all copies share.
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

// Free on one host. Negative: tasks hold more than the host has (the host lost resources).
struct Room {
  std::int64_t cpu_millis = 0, memory_bytes = 0;
  std::uint64_t gpus = 0;   // bit i: gpus[i] of the host is free
  std::uint32_t tasks = 0;  // tasks that hold something here
  bool operator==(const Room&) const = default;
};

// Sums over hosts that take new tasks: what asks for more than these fits nowhere.
struct RoomInAll {
  std::uint64_t cpu_millis = 0, memory_bytes = 0, gpus = 0;
  std::uint64_t most_cpu_millis = 0, most_memory_bytes = 0, most_gpus = 0;  // the most on any one host
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
  // True if the host may get new tasks.
  bool takes_tasks(HostNumber h) const { return host(h).schedulable && (copies_for_all_ || !host(h).no_copy); }
  // Counts as if nothing ran, so that every host can get a copy of the log.
  void give_copies_to_all() { copies_for_all_ = true; }
  const Room& room(HostNumber h) const { return rooms_[h]; }
  std::optional<HostNumber> find(const NodeId& id) const;
  PortRange port_range() const { return table_->ports; }
  RoomInAll in_all() const;
  // A hash of all that does not change while jobs come and go: what fits one empty cluster fits any of the same
  // shape. The order of the hosts does not count, because it changes with who has a copy of the log.
  std::uint64_t shape() const { return table_->shape; }

  // Takes, or frees, what these placements of `spec` hold. Unknown hosts and roles hold nothing.
  void hold(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements);
  void release(const job::JobSpec& spec, const std::vector<TaskPlacement>& placements);
  // The same for many jobs, at the price of one.
  void hold(const std::vector<Holding>& jobs) { change(jobs, true); }
  void release(const std::vector<Holding>& jobs) { change(jobs, false); }
  // Takes resources for `tasks` tasks with `each`, and the GPUs in `gpus`; -1 tasks gives them back.
  void take(HostNumber h, const job::Resources& each, std::uint64_t gpus, std::int64_t tasks);

  // Keeps what is free both here and in `other`, which must have the same hosts.
  void meet(const Capacity& other);

  // Hosts with one task address share a pool of ports.
  std::uint32_t pool(HostNumber h) const { return table_->pool[h]; }
  std::uint32_t pools() const { return static_cast<std::uint32_t>(free_ports_.size()); }
  std::int64_t free_ports(HostNumber h) const { return free_ports_[table_->pool[h]]; }
  // The lowest port above `after` that is neither taken nor resting.
  std::optional<std::uint16_t> next_free_port(HostNumber h, std::optional<std::uint16_t> after) const;
  void take_port(HostNumber h, std::uint16_t port);
  // Counts so many fewer (below zero: more) free ports at `h`, without saying which.
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
    std::vector<GpuClass> classes;  // those of host h: from first_class[h] to before first_class[h + 1]
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
  std::vector<std::int64_t> free_ports_;  // by pool of ports
  std::vector<std::uint64_t> ports_;      // in use: pool << 16 | port, sorted
};

// Takes what tasks hold that have not ended, by the ledger.
void hold_used(const Ledger& ledger, Capacity& capacity);
// Adds ports to each host's ports in use that rest for kPortRest after their use.
void add_resting_ports(const Ledger& ledger, std::vector<HostCapacity>& hosts);

}  // namespace dtrain::cluster
