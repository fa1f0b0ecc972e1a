// The arithmetic of majorities.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace dtrain::raft {

constexpr std::size_t majority(std::size_t voters) { return voters / 2 + 1; }

// The largest value that a majority has reached, given one value for each voter and at least one voter. Reorders the values.
template <class T>
T agreed(std::vector<T>& values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(majority(values.size()) - 1);
  std::nth_element(values.begin(), at, values.end(), std::greater<>());
  return *at;
}

}  // namespace dtrain::raft
