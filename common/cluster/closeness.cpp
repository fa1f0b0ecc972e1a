#include "common/cluster/closeness.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string_view>

#include "common/cluster/gpu_choice.h"
#include "common/cluster/placement.h"

namespace dtrain::cluster {
namespace {

bool put_ranks(Attempt& attempt, const std::vector<std::size_t>& ranks, const std::vector<HostNumber>& among) {
  const std::size_t before = attempt.mark();
  for (const std::size_t f : ranks) {
    if (attempt.put(f, {HostOrder::close, &among})) continue;
    attempt.back_to(before);
    return false;
  }
  return true;
}

// Whether sums allow `h` to hold all tasks; only the attempt can prove that it does.
std::optional<Score> whole_on(const Attempt& attempt, const std::vector<Fit>& fits, const std::vector<std::size_t>& ranks, HostNumber h) {
  std::uint64_t cpu = 0, memory = 0, gpus = 0, matching = 0;
  for (const std::size_t f : ranks) {
    const std::uint32_t count = fits[f].demand().count();
    if (attempt.slots(f, h) < count) return std::nullopt;
    const job::Resources& each = fits[f].demand().role->resources;
    cpu += each.cpu_millis * count;
    memory += each.memory_bytes * count;
    gpus += std::uint64_t{each.gpus} * count;
    matching |= fits[f].gpus(attempt.now(), h);
  }
  const Room& room = attempt.now().room(h);
  const auto free = static_cast<std::uint64_t>(std::popcount(matching));
  if (gpus > free || (cpu > 0 && static_cast<std::int64_t>(cpu) > room.cpu_millis) ||
      (memory > 0 && static_cast<std::int64_t>(memory) > room.memory_bytes))
    return std::nullopt;
  const bool together = gpus <= most_together(attempt.now().host(h), matching);
  const std::int64_t cpus_left = std::max<std::int64_t>(0, room.cpu_millis - static_cast<std::int64_t>(cpu)) / 1000;
  return Score{together ? 0u : 1u, static_cast<std::uint32_t>(free - gpus), room.tasks > 0 ? 0u : 1u,
               static_cast<std::uint32_t>(std::min<std::int64_t>(cpus_left, kSlotsCounted)), h};
}

bool put_on_one_host(Attempt& attempt, const std::vector<Fit>& fits, const std::vector<std::size_t>& ranks) {
  std::vector<Score> hosts;
  for (HostNumber h = 0; h < attempt.now().size(); ++h)
    if (const auto score = whole_on(attempt, fits, ranks, h)) hosts.push_back(*score);
  const std::size_t tries = std::min<std::size_t>(hosts.size(), kCloseTries);
  std::partial_sort(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(tries), hosts.end());
  return std::any_of(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(tries),
                     [&](const Score& s) { return put_ranks(attempt, ranks, {s.back()}); });
}

struct Rack {
  std::vector<HostNumber> hosts;
  bool holds_all = true;    // judged for each role by itself
  std::uint64_t slots = 0;  // for the role with the most tasks
};

// Hosts without the label are in no common rack: they come last.
struct Racks {
  std::vector<Rack> racks;
  std::vector<std::uint32_t> of;  // by host; racks.size(): none
};

Racks racks_of(const Attempt& attempt, const std::vector<Fit>& fits, const std::vector<std::size_t>& ranks) {
  Racks all;
  std::map<std::string_view, std::uint32_t> names;
  const Capacity& now = attempt.now();
  all.of.resize(now.size());
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  for (HostNumber h = 0; h < now.size(); ++h) {
    const auto label = now.host(h).labels.find(kRackLabel);
    all.of[h] = kNone;
    if (label == now.host(h).labels.end()) continue;
    all.of[h] = names.try_emplace(label->second, static_cast<std::uint32_t>(names.size())).first->second;
    if (all.of[h] == all.racks.size()) all.racks.emplace_back();
    all.racks[all.of[h]].hosts.push_back(h);
  }
  for (std::uint32_t& rack : all.of) rack = std::min(rack, static_cast<std::uint32_t>(all.racks.size()));
  const std::size_t main = *std::max_element(
      ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) { return fits[a].demand().count() < fits[b].demand().count(); });
  for (Rack& rack : all.racks)
    for (const std::size_t f : ranks) {
      std::uint64_t slots = 0;
      for (const HostNumber h : rack.hosts) slots += attempt.slots(f, h);
      rack.holds_all = rack.holds_all && slots >= fits[f].demand().count();
      if (f == main) rack.slots = slots;
    }
  return all;
}

bool put_in_one_rack(Attempt& attempt, const std::vector<std::size_t>& ranks, const Racks& racks) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  for (std::uint32_t r = 0; r < racks.racks.size(); ++r)
    if (racks.racks[r].holds_all) order.emplace_back(racks.racks[r].slots, r);
  std::sort(order.begin(), order.end());
  order.resize(std::min<std::size_t>(order.size(), kCloseTries));
  return std::any_of(order.begin(), order.end(),
                     [&](const auto& rack) { return put_ranks(attempt, ranks, racks.racks[rack.second].hosts); });
}

// By host: 0 for those of the rack with the most room, and so on.
std::vector<std::uint32_t> ranks_of_racks(const Racks& racks) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  for (std::uint32_t r = 0; r < racks.racks.size(); ++r) order.emplace_back(~racks.racks[r].slots, r);
  std::sort(order.begin(), order.end());
  std::vector<std::uint32_t> rank(racks.racks.size() + 1, static_cast<std::uint32_t>(racks.racks.size()));
  for (std::uint32_t i = 0; i < order.size(); ++i) rank[order[i].second] = i;
  std::vector<std::uint32_t> by_host;
  for (const std::uint32_t rack : racks.of) by_host.push_back(rank[rack]);
  return by_host;
}

}  // namespace

std::optional<std::size_t> put_close(Attempt& attempt, const std::vector<Fit>& fits, const std::vector<std::size_t>& ranks) {
  if (put_on_one_host(attempt, fits, ranks)) return std::nullopt;
  const Racks racks = racks_of(attempt, fits, ranks);
  if (put_in_one_rack(attempt, ranks, racks)) return std::nullopt;
  const std::vector<std::uint32_t> rack_ranks = ranks_of_racks(racks);
  for (const std::size_t f : ranks)
    if (!attempt.put(f, {HostOrder::close, nullptr, &rack_ranks})) return f;
  return std::nullopt;
}

}  // namespace dtrain::cluster
