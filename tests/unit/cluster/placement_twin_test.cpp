// place() against a naive twin that tries everything: it never over-books, breaks no rule, and finds a place whenever the
// twin does.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "common/base/rng.h"
#include "tests/unit/cluster/hosts.h"

namespace dtrain::cluster {
namespace {

struct Case {
  std::vector<HostCapacity> hosts;
  job::JobSpec spec;
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : rng_(seed) {}
  std::uint32_t from(std::uint64_t low, std::uint64_t high) { return static_cast<std::uint32_t>(low + rng_.below(high - low + 1)); }
  bool chance(std::uint32_t n, std::uint32_t of) { return rng_.chance(n, of); }

  Case one(std::uint32_t roles) {
    Case c;
    const std::uint32_t hosts = from(1, 4);
    for (std::uint32_t i = 0; i < hosts; ++i) {
      const std::uint32_t cpus = from(1, 8);
      const std::uint32_t gpus = chance(1, 2) ? from(1, 4) : 0;
      const std::uint32_t numa = from(1, 2);
      HostCapacity h = host("h" + std::to_string(i), cpus, gpus, numa);
      h.labels["rack"] = chance(1, 2) ? "a" : "b";
      h.schedulable = !chance(1, 10);
      h.memory_bytes = std::uint64_t{from(1, 6)} << 30;
      for (auto& gpu : h.gpus) gpu.free = !chance(1, 6);
      c.hosts.push_back(std::move(h));
    }
    c.spec.name = "j";
    c.spec.framework = chance(1, 2) ? job::Framework::tensorflow : job::Framework::generic;
    static constexpr const char* kNames[] = {"worker", "chief", "aide"};
    for (std::uint32_t i = 0; i < roles; ++i) c.spec.roles[kNames[i]] = a_role(from(1, 3));
    if (chance(1, 3)) c.spec.policy.placement = job::Placement::spread;
    return c;
  }

 private:
  job::RoleSpec a_role(std::uint32_t replicas) {
    job::RoleSpec r = role(replicas);
    r.resources.cpu_millis = 1000 * from(0, 4);
    r.resources.memory_bytes = std::uint64_t{from(0, 2)} << 30;
    if (chance(1, 3)) r.resources.gpus = from(1, 2);
    if (chance(1, 6)) r.node_selector["rack"] = "a";
    if (chance(1, 5)) r.anti_affinity = chance(1, 2) ? "host" : "rack";
    if (chance(1, 4)) r.avoid_gpu_hosts = chance(1, 2) ? job::AvoidGpuHosts::prefer : job::AvoidGpuHosts::require;
    return r;
  }
  Rng rng_;
};

// Every task on every host, one after the other.
class Twin {
 public:
  explicit Twin(const Case& c) : c_(c), tasks_(wanted_tasks(c.spec)), on_(tasks_.size()) {}
  bool fits() { return from(0); }

 private:
  bool from(std::size_t task) {
    if (task == tasks_.size()) return true;
    for (std::size_t h = 0; h < c_.hosts.size(); ++h) {
      on_[task] = h;
      if (allowed(task, h) && from(task + 1)) return true;
    }
    return false;
  }
  bool allowed(std::size_t task, std::size_t h) const {
    const HostCapacity& host = c_.hosts[h];
    const job::RoleSpec& role = c_.spec.roles.at(tasks_[task].role);
    if (!host.schedulable) return false;
    for (const auto& [key, value] : role.node_selector)
      if (host.labels.at(key) != value) return false;
    if (role.avoid_gpu_hosts == job::AvoidGpuHosts::require && !host.gpus.empty()) return false;
    std::uint64_t cpu = 0, memory = 0, gpus = 0;
    for (std::size_t t = 0; t <= task; ++t) {
      const job::RoleSpec& other = c_.spec.roles.at(tasks_[t].role);
      if (on_[t] == h) {
        cpu += other.resources.cpu_millis;
        memory += other.resources.memory_bytes;
        gpus += other.resources.gpus;
      }
      if (t == task || tasks_[t].role != tasks_[task].role) continue;
      if (role.anti_affinity == "host" && on_[t] == h) return false;
      if (role.anti_affinity == "rack" && c_.hosts[on_[t]].labels.at("rack") == host.labels.at("rack")) return false;
    }
    const auto free = std::count_if(host.gpus.begin(), host.gpus.end(), [](const auto& g) { return g.free; });
    return cpu <= host.cpu_millis && memory <= host.memory_bytes && gpus <= static_cast<std::uint64_t>(free);
  }

  const Case& c_;
  std::vector<TaskId> tasks_;
  std::vector<std::size_t> on_;
};

// Whether the rules hold, judged from the placements alone.
std::string judge(const Case& c, const std::vector<TaskPlacement>& placements) {
  std::map<NodeId, std::uint64_t> cpu, memory;
  std::set<std::pair<NodeId, std::uint32_t>> gpus;
  std::set<std::pair<NodeId, std::uint16_t>> ports;
  std::set<std::pair<std::string, std::string>> groups;
  std::vector<TaskId> tasks;
  for (const TaskPlacement& p : placements) {
    tasks.push_back(p.task);
    const job::RoleSpec& role = c.spec.roles.at(p.task.role);
    const HostCapacity& h = *std::find_if(c.hosts.begin(), c.hosts.end(), [&](const auto& x) { return x.id == p.node; });
    if (!h.schedulable) return "on a cordoned host";
    for (const auto& [key, value] : role.node_selector)
      if (h.labels.at(key) != value) return "on a host without the label";
    if (role.avoid_gpu_hosts == job::AvoidGpuHosts::require && !h.gpus.empty()) return "on a host with GPUs";
    const std::string group = role.anti_affinity == "host" ? h.id : h.labels.at("rack");
    if (role.anti_affinity != "none" && !groups.insert({p.task.role, group}).second) return "two in one group";
    if ((cpu[h.id] += role.resources.cpu_millis) > h.cpu_millis) return "cpus over-booked";
    if ((memory[h.id] += role.resources.memory_bytes) > h.memory_bytes) return "memory over-booked";
    if (p.gpus.size() != role.resources.gpus) return "another number of GPUs";
    for (const std::uint32_t gpu : p.gpus)
      if (!h.gpus.at(gpu).free || !gpus.insert({h.id, gpu}).second) return "a GPU twice";
    const bool wants_port = c.spec.framework != job::Framework::generic;
    if ((p.address.port != 0) != wants_port) return "a port too many or too few";
    if (wants_port && !ports.insert({h.id, p.address.port}).second) return "a port twice";
  }
  return tasks == wanted_tasks(c.spec) ? "" : "other tasks than asked for";
}

void compare(std::uint32_t roles, std::uint64_t seeds) {
  std::uint64_t fitted = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Case c = Draw(seed * 4 + roles).one(roles);
    const auto placed = place(c.spec, wanted_tasks(c.spec), c.hosts);
    const bool possible = Twin(c).fits();
    ASSERT_EQ(placed.has_value(), possible) << "roles " << roles << " seed " << seed << ": " << (placed ? "" : placed.error().message);
    const std::string broken = placed ? judge(c, *placed) : "";
    ASSERT_EQ(broken, "") << "roles " << roles << " seed " << seed;
    // Refused by sums: sure to be refused.
    const bool by_sums = may_fit(c.spec, wanted_tasks(c.spec), Capacity(c.hosts).in_all());
    ASSERT_TRUE(by_sums || !possible) << seed;
    ++(placed ? fitted : refused);
  }
  EXPECT_GT(fitted, seeds / 10);
  EXPECT_GT(refused, seeds / 10);
}

TEST(PlacementTwin, OneRole) { compare(1, 4000); }

TEST(PlacementTwin, TwoAndThreeRoles) {
  compare(2, 4000);
  compare(3, 2000);
}

// What is held and given back leaves no trace.
TEST(PlacementTwin, HoldAndReleaseAreInverse) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const Case c = Draw(seed).one(2);
    Capacity free(c.hosts);
    const auto placed = place(c.spec, wanted_tasks(c.spec), free);
    if (!placed) continue;
    Capacity then = free;
    then.hold(c.spec, *placed);
    Capacity both = free;
    both.meet(then);
    then.release(c.spec, *placed);
    for (HostNumber h = 0; h < free.size(); ++h) {
      ASSERT_EQ(then.room(h), free.room(h));
      ASSERT_EQ(then.free_ports(h), free.free_ports(h));
      ASSERT_LE(both.room(h).cpu_millis, free.room(h).cpu_millis);
    }
  }
}

}  // namespace
}  // namespace dtrain::cluster
