// Which CPUs a task gets for itself: tables, and a twin that tries all ways on small hosts.
#include "common/task/cpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <ostream>

namespace dtrain::task {

void showValue(const HostCpu& cpu, std::ostream& out) { out << cpu.index << " of core " << cpu.core << " on node " << cpu.numa; }

namespace {

using testing::HasSubstr;
using testing::IsEmpty;

using Cpus = std::vector<std::uint32_t>;

// `nodes` of `cores` cores each; first hyperthreads are numbered before second ones, as on most machines.
std::vector<HostCpu> host(std::uint32_t nodes, std::uint32_t cores, std::uint32_t threads) {
  std::vector<HostCpu> cpus;
  for (std::uint32_t i = 0; i < nodes * cores * threads; ++i) {
    const std::uint32_t core = i % (nodes * cores);
    cpus.push_back({i, core, static_cast<std::int32_t>(core / cores)});
  }
  return cpus;
}

TEST(CpuChoice, WholeCpusAloneAreOnesOwn) {
  EXPECT_EQ(own_cpus(0), 0u);
  EXPECT_EQ(own_cpus(500), 0u);
  EXPECT_EQ(own_cpus(1000), 1u);
  EXPECT_EQ(own_cpus(1500), 0u);
  EXPECT_EQ(own_cpus(64'000), 64u);
}

struct Case {
  const char* what;
  std::vector<HostCpu> host;
  std::set<std::uint32_t> taken;
  std::uint64_t millis;
  std::vector<std::int32_t> near;
  Cpus cpus;
  std::int32_t node;
};

TEST(CpuChoice, Table) {
  // Two nodes of two cores of two: node 0 has CPUs 0, 4 and 1, 5; node 1 has 2, 6 and 3, 7.
  const auto small = host(2, 2, 2);
  const std::vector<HostCpu> unknown = {{0, 0, -1}, {1, 1, -1}, {2, 2, -1}, {3, 3, -1}};
  const std::vector<Case> table = {
      {"both hyperthreads of one core", small, {}, 2000, {}, {0, 4}, 0},
      {"of the node of its GPU", small, {}, 2000, {1}, {2, 6}, 1},
      {"all of a node", small, {}, 4000, {1}, {2, 3, 6, 7}, 1},
      {"half a core rather than half of a whole one", small, {0}, 1000, {}, {4}, 0},
      {"a whole core though halves are free", small, {0}, 2000, {0}, {1, 5}, 0},
      {"halves where no core is whole", small, {0, 1}, 2000, {0}, {4, 5}, 0},
      {"a core and a half", small, {4}, 3000, {0}, {0, 1, 5}, 0},
      {"the node that is fuller, so that the other stays whole", small, {2}, 2000, {}, {3, 7}, 1},
      {"one node rather than parts of two", small, {0, 4, 1}, 2000, {}, {2, 6}, 1},
      {"one node elsewhere rather than a part near", small, {0, 4, 1}, 2000, {0}, {2, 6}, 1},
      {"both nodes of its GPUs", small, {0, 2}, 5000, {0, 1}, {1, 3, 4, 5, 7}, -1},
      {"the node of its GPUs that has room", small, {0, 4, 1}, 4000, {0, 1}, {2, 3, 6, 7}, 1},
      {"what is near first, where no node has room", small, {2, 6}, 5000, {1}, {0, 1, 3, 4, 7}, -1},
      {"all that is left", small, {0, 5, 3}, 5000, {}, {1, 2, 4, 6, 7}, -1},
      {"the whole host", small, {}, 8000, {}, {0, 1, 2, 3, 4, 5, 6, 7}, -1},
      {"a node that the host does not have", small, {}, 2000, {7, -1}, {0, 4}, 0},
      {"one node: nothing is nearer", host(1, 2, 2), {}, 2000, {0}, {0, 2}, -1},
      {"no hyperthreads", host(2, 2, 1), {0}, 2000, {}, {2, 3}, 1},
      {"nothing known", unknown, {1}, 2000, {0}, {0, 2}, -1},
      {"CPUs that are offline are no choice", {{1, 0, 0}, {5, 2, 0}, {6, 3, 0}, {7, 3, 0}}, {}, 2000, {}, {1, 5}, -1},
      {"taken ones that the host does not have any more", host(1, 2, 1), {8, 9}, 2000, {}, {0, 1}, -1},
      {"a part of a CPU", small, {}, 1500, {1}, {}, -1},
      {"no CPUs", small, {}, 0, {1}, {}, -1},
      {"a host of which nothing is known", {}, {}, 2000, {1}, {}, -1},
  };
  for (const Case& c : table) {
    const CpuChoice choice = choose_cpus(c.host, c.taken, c.millis, c.near);
    EXPECT_EQ(choice.cpus, c.cpus) << c.what;
    EXPECT_EQ(choice.numa_node, c.node) << c.what;
    EXPECT_EQ(choice.reason, "") << c.what;
  }
}

TEST(CpuChoice, ThatThereAreTooFewIsAReason) {
  const CpuChoice choice = choose_cpus(host(1, 2, 2), {0, 1, 2}, 2000, {});
  EXPECT_THAT(choice.cpus, IsEmpty());
  EXPECT_EQ(choice.numa_node, -1);
  EXPECT_EQ(choice.reason, "it asks for 2 CPUs, and 1 of 4 are nobody's");
  EXPECT_THAT(choose_cpus(host(1, 2, 2), {}, 5000, {}).reason, HasSubstr("5 CPUs, and 4 of 4"));
}

// ---------------------------------------------------------------- the twin

// Better is lower. Of what is compared nothing depends on the way that choose_cpus() goes: only on the set.
using Score = std::array<std::int64_t, 7>;

Score score(const std::vector<HostCpu>& host, const std::set<std::uint32_t>& taken, const std::set<std::int32_t>& near,
            const std::vector<HostCpu>& chosen) {
  struct Use {
    std::int64_t size = 0, free = 0, used = 0;
  };
  std::map<std::int32_t, Use> nodes;
  std::map<std::uint32_t, Use> cores;
  for (const HostCpu& cpu : host) {
    const std::int64_t free = taken.contains(cpu.index) ? 0 : 1;
    ++cores[cpu.core].size;
    cores[cpu.core].free += free;
    nodes[cpu.numa].free += free;
  }
  for (const HostCpu& cpu : chosen) {
    ++nodes[cpu.numa].used;
    ++cores[cpu.core].used;
  }
  std::int64_t used_nodes = 0, outside = 0, free_there = 0, where = 0, in_whole = 0, broken = 0;
  for (const auto& [number, node] : nodes) {
    if (node.used == 0) continue;
    ++used_nodes;
    free_there = node.free;
    where = number;  // among equals
    if (!near.contains(number)) outside += node.used;
  }
  for (const auto& [number, core] : cores) {
    if (core.used == core.size) in_whole += core.used;
    else if (core.used > 0 && core.free == core.size) ++broken;
  }
  const bool one = used_nodes == 1;
  const std::int64_t tier = one && outside == 0 ? 0 : outside == 0 ? 1 : one ? 2 : 3;
  // Across nodes which of them is taken in part is choose_cpus()'s own affair, and with it which cores stay whole.
  if (!one) return {tier, outside, used_nodes, 0, 0, 0, 0};
  return {tier, outside, used_nodes, free_there, where, -in_whole, broken};
}

Score best_of_all(const std::vector<HostCpu>& host, const std::set<std::uint32_t>& taken, const std::set<std::int32_t>& near,
                  std::size_t want) {
  std::vector<HostCpu> free;
  for (const HostCpu& cpu : host)
    if (!taken.contains(cpu.index)) free.push_back(cpu);
  std::optional<Score> best;
  for (std::uint32_t mask = 0; mask < 1u << free.size(); ++mask) {
    if (static_cast<std::size_t>(std::popcount(mask)) != want) continue;
    std::vector<HostCpu> chosen;
    for (std::size_t i = 0; i < free.size(); ++i)
      if ((mask >> i & 1) != 0) chosen.push_back(free[i]);
    const Score s = score(host, taken, near, chosen);
    if (!best || s < *best) best = s;
  }
  return *best;
}

template <class T>
rc::Gen<std::set<T>> some_below(std::uint32_t end) {
  return rc::gen::map(rc::gen::inRange(0u, 1u << end), [end](std::uint32_t bits) {
    std::set<T> some;
    for (std::uint32_t i = 0; i < end; ++i)
      if ((bits >> i & 1) != 0) some.insert(static_cast<T>(i));
    return some;
  });
}

RC_GTEST_PROP(CpuChoiceTwin, NoSetOfFreeCpusIsBetter, ()) {
  const auto nodes = *rc::gen::inRange(1u, 4u), threads = *rc::gen::element(1u, 2u, 4u);
  const auto cores = *rc::gen::inRange(1u, 12 / (nodes * threads) + 1);
  const auto all = host(nodes, cores, threads);
  const auto taken = *some_below<std::uint32_t>(static_cast<std::uint32_t>(all.size()));
  const auto near = *some_below<std::int32_t>(nodes);
  const auto want = *rc::gen::inRange<std::size_t>(1, all.size() + 2);
  const CpuChoice choice = choose_cpus(all, taken, want * 1000, {near.begin(), near.end()});
  if (all.size() - taken.size() < want) {
    RC_ASSERT(choice.cpus.empty() && !choice.reason.empty());
    return;
  }
  RC_ASSERT(choice.cpus.size() == want && choice.reason.empty());
  RC_ASSERT(std::ranges::is_sorted(choice.cpus) && std::ranges::adjacent_find(choice.cpus) == choice.cpus.end());
  std::vector<HostCpu> chosen;
  std::set<std::int32_t> on;
  for (const std::uint32_t index : choice.cpus) {
    RC_ASSERT(!taken.contains(index));
    const auto cpu = std::ranges::find(all, index, &HostCpu::index);
    RC_ASSERT(cpu != all.end());
    chosen.push_back(*cpu);
    on.insert(cpu->numa);
  }
  RC_ASSERT(choice.numa_node == (on.size() == 1 && nodes > 1 ? *on.begin() : -1));
  RC_ASSERT(score(all, taken, near, chosen) == best_of_all(all, taken, near, want));
}

// Whoever comes and goes: nobody has what another one has, and whole hosts are given out to the last CPU.
RC_GTEST_PROP(CpuChoiceTwin, EveryCpuIsGivenOutOnce, ()) {
  const auto all = host(*rc::gen::inRange(1u, 4u), *rc::gen::inRange(1u, 5u), *rc::gen::element(1u, 2u));
  std::set<std::uint32_t> taken;
  while (taken.size() < all.size()) {
    const auto want = *rc::gen::inRange<std::size_t>(1, all.size() - taken.size() + 1);
    const CpuChoice choice = choose_cpus(all, taken, want * 1000, {});
    RC_ASSERT(choice.cpus.size() == want);
    for (const std::uint32_t cpu : choice.cpus) RC_ASSERT(taken.insert(cpu).second);
  }
}

}  // namespace
}  // namespace dtrain::task
