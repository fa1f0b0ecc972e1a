// Waiting events, ordered by time, then by when they were added. Typed and small, where Timeline takes any function:
// ten thousand members make hundreds of thousands of events for each virtual second. `What` is the world's own enum
// of event kinds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/time.h"

namespace dtrain::sim {

template <class What>
struct EventOf {
  Instant at{};
  std::uint64_t order = 0;
  std::uint32_t slot = 0, a = 0, b = 0;
  What what{};
  std::uint8_t detail = 0;
};

// A four-ary heap: half the levels of a binary one, and its children lie beside each other.
template <class What>
class EventQueueOf {
 public:
  using Event = EventOf<What>;

  bool empty() const { return heap_.empty(); }
  Instant next() const { return heap_.empty() ? kNever : heap_.front().at; }
  std::uint64_t taken() const { return taken_; }

  void push(Instant at, What what, std::uint32_t slot, std::uint32_t a = 0, std::uint32_t b = 0, std::uint8_t detail = 0) {
    heap_.push_back({at, order_++, slot, a, b, what, detail});
    std::size_t i = heap_.size() - 1;
    const Event event = heap_[i];
    while (i > 0) {
      const std::size_t parent = (i - 1) / kWays;
      if (!before(event, heap_[parent])) break;
      heap_[i] = heap_[parent];
      i = parent;
    }
    heap_[i] = event;
  }

  Event pop() {
    const Event first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    ++taken_;
    if (heap_.empty()) return first;
    std::size_t i = 0;
    for (;;) {
      const std::size_t begin = i * kWays + 1, end = std::min(begin + kWays, heap_.size());
      if (begin >= end) break;
      std::size_t least = begin;
      for (std::size_t child = begin + 1; child < end; ++child)
        if (before(heap_[child], heap_[least])) least = child;
      if (!before(heap_[least], last)) break;
      heap_[i] = heap_[least];
      i = least;
    }
    heap_[i] = last;
    return first;
  }

 private:
  static constexpr std::size_t kWays = 4;
  static bool before(const Event& x, const Event& y) { return x.at != y.at ? x.at < y.at : x.order < y.order; }

  std::vector<Event> heap_;
  std::uint64_t order_ = 0, taken_ = 0;
};

}  // namespace dtrain::sim
