#include "tests/sim/timeline.h"

#include <algorithm>

#include "common/base/check.h"

namespace dtrain::sim {

void Timeline::at(Instant when, Action action) {
  heap_.push_back(Entry{std::max(when, now_), order_++, std::move(action)});
  std::push_heap(heap_.begin(), heap_.end(), later);
}

void Timeline::advance_to(Instant when) {
  CHECK(when <= next());
  now_ = std::max(now_, when);
}

void Timeline::run_next() {
  CHECK(!heap_.empty());
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Entry entry = std::move(heap_.back());
  heap_.pop_back();
  now_ = entry.at;
  ++done_;
  entry.action();
}

}  // namespace dtrain::sim
