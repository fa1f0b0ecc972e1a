#include "common/cluster/attempt.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/cluster/gpu_choice.h"

namespace dtrain::cluster {

Attempt::Attempt(const Capacity& capacity, const std::vector<Fit>& fits, std::size_t tasks, bool with_ports,
                 std::vector<std::uint32_t> standing)
    : now_(capacity),
      fits_(fits),
      with_ports_(with_ports),
      choices_(tasks),
      placed_(fits.size(), 0),
      groups_taken_(fits.size()),
      own_(std::move(standing)) {
  own_.resize(capacity.size(), 0);
  for (std::size_t f = 0; f < fits.size(); ++f) {
    if (!fits[f].spaced()) continue;
    groups_taken_[f].assign(fits[f].groups(), false);
    for (const HostNumber h : fits[f].demand().standing) groups_taken_[f][fits[f].group(h)] = true;
  }
}

bool Attempt::group_taken(std::size_t f, HostNumber h) const { return fits_[f].spaced() && groups_taken_[f][fits_[f].group(h)]; }

std::uint32_t Attempt::slots(std::size_t f, HostNumber h) const {
  if (group_taken(f, h)) return 0;
  const std::uint32_t slots = fits_[f].slots(now_, h);
  return fits_[f].spaced() ? std::min(slots, 1u) : slots;
}

std::uint64_t Attempt::slots_in_all(std::size_t f, std::uint64_t enough) const {
  std::uint64_t sum = 0;
  std::vector<bool> counted(fits_[f].groups(), false);
  for (HostNumber h = 0; h < now_.size() && sum < enough; ++h) {
    const std::uint32_t here = slots(f, h);
    if (here == 0) continue;
    if (fits_[f].spaced()) {
      if (counted[fits_[f].group(h)]) continue;
      counted[fits_[f].group(h)] = true;
    }
    sum += here;
  }
  return std::min(sum, enough);
}

HostNow Attempt::look(std::size_t f, HostNumber h, const Wishes& wishes) const {
  const bool avoided = fits_[f].demand().role->avoid_gpu_hosts == job::AvoidGpuHosts::prefer && !now_.host(h).gpus.empty();
  return {h, slots(f, h), own_[h], now_.room(h).tasks, wishes.rack_ranks == nullptr ? 0 : (*wishes.rack_ranks)[h], avoided};
}

bool Attempt::put(std::size_t f, const Wishes& wishes) {
  const std::size_t before = mark();
  std::uint32_t left = fits_[f].demand().count() - placed_[f], scored_for = left;
  std::vector<Score> waiting;  // a heap: most hosts are never needed in order
  const auto offer = [&](HostNumber h) {
    const HostNow now = look(f, h, wishes);
    if (now.slots > 0) waiting.push_back(score(now, wishes.order, left));
  };
  const auto offer_all = [&] {
    waiting.clear();
    scored_for = left;
    if (wishes.among != nullptr)
      for (const HostNumber h : *wishes.among) offer(h);
    else
      for (HostNumber h = 0; h < now_.size(); ++h) offer(h);
    std::make_heap(waiting.begin(), waiting.end(), std::greater<>());
  };
  offer_all();
  while (left > 0 && !waiting.empty()) {
    const HostNumber h = waiting.front().back();
    std::uint32_t here = std::min(slots(f, h), left);  // another host of its group, or the ports that it shares, may have been taken
    // The first host that holds all remaining tasks was reached: a fuller one may hold them, too.
    if (wishes.order == HostOrder::close && here == left && scored_for != left) {
      offer_all();
      continue;
    }
    std::pop_heap(waiting.begin(), waiting.end(), std::greater<>());
    waiting.pop_back();
    if (here == 0) continue;
    if (wishes.order == HostOrder::spread) here = 1;
    put_on(f, h, here);
    left -= here;
    if (wishes.order != HostOrder::spread) continue;
    offer(h);
    if (!waiting.empty()) std::push_heap(waiting.begin(), waiting.end(), std::greater<>());
  }
  if (left > 0) back_to(before);
  return left == 0;
}

void Attempt::put_on(std::size_t f, HostNumber h, std::uint32_t count) {
  const Demand& demand = fits_[f].demand();
  const job::Resources& each = demand.role->resources;
  std::uint64_t beside = 0;
  if (each.gpus > 0 && own_[h] > 0)
    for (const Step& step : steps_)
      if (step.host == h) beside |= step.gpus;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t gpus = choose_gpus(now_.host(h), fits_[f].gpus(now_, h), each.gpus, each.gpus * (count - i), beside);
    beside |= gpus;
    now_.take(h, each, gpus, 1);
    if (with_ports_) now_.count_ports(h, 1);
    if (fits_[f].spaced()) groups_taken_[f][fits_[f].group(h)] = true;
    ++own_[h];
    const std::size_t task = demand.tasks[placed_[f]++];
    choices_[task] = {h, gpus};
    steps_.push_back({f, task, h, gpus});
  }
}

void Attempt::back_to(std::size_t mark) {
  while (steps_.size() > mark) {
    const Step step = steps_.back();
    steps_.pop_back();
    now_.take(step.host, fits_[step.fit].demand().role->resources, step.gpus, -1);
    if (with_ports_) now_.count_ports(step.host, -1);
    if (fits_[step.fit].spaced()) groups_taken_[step.fit][fits_[step.fit].group(step.host)] = false;
    --own_[step.host];
    --placed_[step.fit];
  }
}

}  // namespace dtrain::cluster
