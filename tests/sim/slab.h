// Values under small numbers, which are reused once they are free.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace dtrain::sim {

template <class T>
class Slab {
 public:
  std::uint32_t put(T value) {
    if (free_.empty()) {
      values_.push_back(std::move(value));
      return static_cast<std::uint32_t>(values_.size() - 1);
    }
    const std::uint32_t at = free_.back();
    free_.pop_back();
    values_[at] = std::move(value);
    return at;
  }
  T take(std::uint32_t at) {
    T value = std::move(values_[at]);
    drop(at);
    return value;
  }
  void drop(std::uint32_t at) {
    values_[at] = T{};
    free_.push_back(at);
  }
  T& operator[](std::uint32_t at) { return values_[at]; }

 private:
  std::deque<T> values_;
  std::vector<std::uint32_t> free_;
};

}  // namespace dtrain::sim
