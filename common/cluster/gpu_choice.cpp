#include "common/cluster/gpu_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace dtrain::cluster {
namespace {

// GPUs that belong together: those of one link group, or of one NUMA node.
struct Cell {
  std::int32_t number = -1;
  std::uint64_t gpus = 0;  // all of the host's GPUs in it
  std::uint32_t count(std::uint64_t free) const { return static_cast<std::uint32_t>(std::popcount(gpus & free)); }
};

enum class By : unsigned char { link, numa };

std::vector<Cell> cells(const HostCapacity& host, By by) {
  std::vector<Cell> all;
  for (std::size_t i = 0; i < std::min(host.gpus.size(), kGpusPerHost); ++i) {
    const std::int32_t number = by == By::link ? host.gpus[i].group : host.gpus[i].numa;
    auto cell = std::find_if(all.begin(), all.end(), [&](const Cell& c) { return c.number == number; });
    if (cell == all.end()) cell = all.insert(all.end(), {number, 0});
    cell->gpus |= std::uint64_t{1} << i;
  }
  std::sort(all.begin(), all.end(), [](const Cell& a, const Cell& b) { return a.number < b.number; });
  return all;
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

std::uint32_t count_of(std::uint64_t gpus) { return static_cast<std::uint32_t>(std::popcount(gpus)); }

std::uint64_t choose(const HostCapacity& host, By by, std::uint64_t free, std::uint32_t want, std::uint32_t in_all, std::uint64_t beside) {
  const std::vector<Cell> all = cells(host, by);
  const bool several = in_all > 1;
  std::uint64_t taken = 0;
  while (want > 0 && (free & ~taken) != 0) {
    const std::uint64_t left = free & ~taken;
    const auto rank = [&](const Cell& c) {
      const std::uint32_t here = c.count(left), elsewhere = (c.gpus & beside) != 0 ? 0 : 1;
      const std::uint32_t unfit = by == By::link && several != (c.number >= 0) ? 1 : 0;
      if (here >= in_all) return std::array{0u, elsewhere, unfit, here};
      if (here >= want) return std::array{1u, elsewhere, unfit, here};
      return std::array{2u, static_cast<std::uint32_t>(kGpusPerHost) - here, elsewhere, unfit};
    };
    const Cell* best = nullptr;
    for (const Cell& c : all)
      if (c.count(left) > 0 && (best == nullptr || rank(c) < rank(*best))) best = &c;
    const std::uint64_t in_best = left & best->gpus;
    const std::uint32_t from_best = std::min(want, count_of(in_best));
    const std::uint64_t here = by == By::link ? choose(host, By::numa, in_best, from_best, in_all, beside) : lowest(in_best, from_best);
    want -= count_of(here);
    in_all -= std::min(in_all, count_of(here));
    taken |= here;
  }
  return taken;
}

}  // namespace

std::uint64_t choose_gpus(const HostCapacity& host, std::uint64_t free, std::uint32_t want, std::uint32_t in_all, std::uint64_t beside) {
  return choose(host, By::link, free, want, in_all, beside);
}

std::uint32_t most_together(const HostCapacity& host, std::uint64_t free) {
  std::uint32_t most = 0;
  for (const By by : {By::link, By::numa})
    for (const Cell& c : cells(host, by))
      if (by == By::numa || c.number >= 0) most = std::max(most, c.count(free));
  return most;
}

}  // namespace dtrain::cluster
