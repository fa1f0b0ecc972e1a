#include "common/cluster/gpu_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace dtrain::cluster {
namespace {

struct NumaNode {
  std::int32_t number = -1;
  std::uint64_t gpus = 0;    // all of the host's that lie here
  std::uint32_t count(std::uint64_t free) const { return static_cast<std::uint32_t>(std::popcount(gpus & free)); }
};

std::vector<NumaNode> numa_nodes(const HostCapacity& host) {
  std::vector<NumaNode> nodes;
  for (std::size_t i = 0; i < std::min(host.gpus.size(), kGpusPerHost); ++i) {
    auto node = std::find_if(nodes.begin(), nodes.end(), [&](const NumaNode& n) { return n.number == host.gpus[i].numa; });
    if (node == nodes.end()) node = nodes.insert(nodes.end(), {host.gpus[i].numa, 0});
    node->gpus |= std::uint64_t{1} << i;
  }
  std::sort(nodes.begin(), nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.number < b.number; });
  return nodes;
}

std::uint64_t lowest(std::uint64_t from, std::uint32_t count) {
  std::uint64_t taken = 0;
  for (; count > 0 && from != 0; --count) {
    const std::uint64_t bit = from & (~from + 1);
    taken |= bit;
    from &= ~bit;
  }
  return taken;
}

}  // namespace

std::uint64_t choose_gpus(const HostCapacity& host, std::uint64_t free, std::uint32_t want, std::uint32_t in_all,
                          std::uint64_t beside) {
  if (want == 0) return 0;
  const std::vector<NumaNode> nodes = numa_nodes(host);
  std::uint64_t taken = 0;
  while (want > 0 && (free & ~taken) != 0) {
    const std::uint64_t left = free & ~taken;
    const auto rank = [&](const NumaNode& n) {
      const std::uint32_t here = n.count(left), elsewhere = (n.gpus & beside) != 0 ? 0 : 1;
      if (here >= in_all) return std::array{0u, elsewhere, here};
      if (here >= want) return std::array{1u, elsewhere, here};
      return std::array{2u, static_cast<std::uint32_t>(kGpusPerHost) - here, elsewhere};
    };
    const NumaNode* best = nullptr;
    for (const NumaNode& n : nodes)
      if (n.count(left) > 0 && (best == nullptr || rank(n) < rank(*best))) best = &n;
    const std::uint64_t here = lowest(left & best->gpus, want);
    want -= static_cast<std::uint32_t>(std::popcount(here));
    in_all -= std::min(in_all, static_cast<std::uint32_t>(std::popcount(here)));
    taken |= here;
  }
  return taken;
}

std::uint32_t most_on_one_numa_node(const HostCapacity& host, std::uint64_t free) {
  std::uint32_t most = 0;
  for (const NumaNode& n : numa_nodes(host)) most = std::max(most, n.count(free));
  return most;
}

}  // namespace dtrain::cluster
