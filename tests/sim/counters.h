// Figures that consist only of counters: one list names them, so that none is forgotten in one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace dtrain::sim {

template <class Figures>
struct Counter {
  const char* name;
  std::uint64_t Figures::*counter;
};

template <class Figures, std::size_t N>
void join_counters(const Counter<Figures> (&all)[N], Figures& sum, const Figures& run) {
  static_assert(N * sizeof(std::uint64_t) == sizeof(Figures), "a counter is not in the list");
  for (const auto& [name, counter] : all) sum.*counter += run.*counter;
}
template <class Figures, std::size_t N>
nlohmann::json counters_json(const Counter<Figures> (&all)[N], const Figures& figures) {
  nlohmann::json out;
  for (const auto& [name, counter] : all) out[name] = figures.*counter;
  return out;
}

}  // namespace dtrain::sim
