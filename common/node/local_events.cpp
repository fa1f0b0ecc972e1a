#include "common/node/local_events.h"

#include <algorithm>
#include <utility>

namespace dtrain::node {

std::uint64_t LocalEvents::add(wire::EventView event) {
  event.local = ++local_;
  events_.push_back(std::move(event));
  if (events_.size() > kLocalEvents) events_.pop_front();
  return local_;
}

std::uint64_t LocalEvents::add_bounded(wire::EventView event) {
  const auto alike = [&](const wire::EventView& e) { return e.type == event.type; };
  if (static_cast<std::size_t>(std::ranges::count_if(events_, alike)) >= kLocalOfType) events_.erase(std::ranges::find_if(events_, alike));
  return add(std::move(event));
}

void LocalEvents::replace(std::uint64_t local) {
  const auto found = std::ranges::lower_bound(events_, local, {}, &wire::EventView::local);
  if (found != events_.end() && found->local == local) events_.erase(found);
}

}  // namespace dtrain::node
