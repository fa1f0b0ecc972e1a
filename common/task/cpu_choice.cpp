#include "common/task/cpu_choice.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace dtrain::task {
namespace {

struct Core {
  std::uint32_t size = 0;           // including all hyperthreads that tasks may have
  std::vector<std::uint32_t> free;  // ascending
  bool whole() const { return free.size() == size; }
};

struct Node {
  std::int32_t number = -1;
  bool near = false;
  std::size_t free = 0;
  std::map<std::uint32_t, Core> cores;
};

std::vector<Node> nodes_of(const std::vector<HostCpu>& host, const std::set<std::uint32_t>& taken, const std::vector<std::int32_t>& near) {
  std::map<std::int32_t, Node> nodes;
  for (const HostCpu& cpu : host) {
    Node& node = nodes[cpu.numa];
    Core& core = node.cores[cpu.core];
    ++core.size;
    if (taken.contains(cpu.index)) continue;
    core.free.push_back(cpu.index);
    ++node.free;
  }
  std::vector<Node> all;
  for (auto& [number, node] : nodes) {
    node.number = number;
    node.near = number >= 0 && std::ranges::find(near, number) != near.end();
    for (auto& [core, of_it] : node.cores) std::ranges::sort(of_it.free);
    all.push_back(std::move(node));
  }
  return all;
}

// The nodes to take CPUs from, in order. `nodes` is sorted by number, which decides among equals.
std::vector<const Node*> in_turn(const std::vector<Node>& nodes, std::size_t want) {
  const Node *one_near = nullptr, *one_elsewhere = nullptr;
  std::size_t free_near = 0;
  std::vector<const Node*> most_first;
  for (const Node& node : nodes) {
    const Node*& one = node.near ? one_near : one_elsewhere;
    if (node.free >= want && (one == nullptr || node.free < one->free)) one = &node;
    if (node.near) free_near += node.free;
    most_first.push_back(&node);
  }
  if (one_near != nullptr) return {one_near};
  if (free_near < want && one_elsewhere != nullptr) return {one_elsewhere};
  std::ranges::stable_sort(most_first,
                           [](const Node* a, const Node* b) { return std::tuple(!a->near, b->free) < std::tuple(!b->near, a->free); });
  return most_first;
}

// Takes at most `want` CPUs of the node.
void take(const Node& node, std::size_t want, std::vector<std::uint32_t>& out) {
  std::vector<const Core*> rest;
  for (const auto& [number, core] : node.cores) {
    if (core.whole() && core.size <= want) {
      out.insert(out.end(), core.free.begin(), core.free.end());
      want -= core.size;
    } else {
      rest.push_back(&core);
    }
  }
  std::ranges::stable_sort(
      rest, [](const Core* a, const Core* b) { return std::tuple(a->whole(), a->free.size()) < std::tuple(b->whole(), b->free.size()); });
  for (const Core* core : rest) {
    const std::size_t some = std::min(want, core->free.size());
    out.insert(out.end(), core->free.begin(), core->free.begin() + static_cast<std::ptrdiff_t>(some));
    want -= some;
  }
}

}  // namespace

std::uint32_t own_cpus(std::uint64_t millis) { return millis % 1000 == 0 ? static_cast<std::uint32_t>(millis / 1000) : 0; }

CpuChoice choose_cpus(const std::vector<HostCpu>& host, const std::set<std::uint32_t>& taken, std::uint64_t millis,
                      const std::vector<std::int32_t>& near) {
  CpuChoice choice;
  const std::size_t want = own_cpus(millis);
  if (want == 0 || host.empty()) return choice;
  const std::vector<Node> nodes = nodes_of(host, taken, near);
  std::size_t free = 0;
  for (const Node& node : nodes) free += node.free;
  if (free < want) {
    choice.reason = "it asks for " + std::to_string(want) + (want == 1 ? " CPU, and " : " CPUs, and ") + std::to_string(free) + " of " +
                    std::to_string(host.size()) + " are nobody's";
    return choice;
  }
  std::size_t used = 0;
  for (const Node* node : in_turn(nodes, want)) {
    const std::size_t before = choice.cpus.size();
    take(*node, want - before, choice.cpus);
    if (choice.cpus.size() == before) continue;
    choice.numa_node = ++used == 1 && nodes.size() > 1 ? node->number : -1;
  }
  std::ranges::sort(choice.cpus);
  return choice;
}

}  // namespace dtrain::task
