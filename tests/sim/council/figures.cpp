#include "tests/sim/council/figures.h"

namespace dtrain::sim::council {
namespace {

// One list of all counters, so that none is forgotten in one place.
constexpr struct {
  const char* name;
  std::uint64_t Figures::*counter;
} kCounters[] = {
    {"events", &Figures::events},
    {"steps", &Figures::steps},
    {"messages", &Figures::messages},
    {"encoded", &Figures::encoded},
    {"persists", &Figures::persists},
    {"committed", &Figures::committed},
    {"writes", &Figures::writes},
    {"reads", &Figures::reads},
    {"given_up", &Figures::given_up},
    {"elections", &Figures::elections},
    {"leaders", &Figures::leaders},
    {"changes", &Figures::changes},
    {"snapshots", &Figures::snapshots},
    {"installs", &Figures::installs},
    {"restarts", &Figures::restarts},
    {"fenced", &Figures::fenced},
    {"wiped", &Figures::wiped},
    {"rolled_back", &Figures::rolled_back},
    {"recoveries", &Figures::recoveries},
    {"disk_errors", &Figures::disk_errors},
    {"crashes_in_persist", &Figures::crashes_in_persist},
};
static_assert(std::size(kCounters) * sizeof(std::uint64_t) == sizeof(Figures));

}  // namespace

void Figures::join(const Figures& run) {
  for (const auto& [name, counter] : kCounters) this->*counter += run.*counter;
}

nlohmann::json Figures::json() const {
  nlohmann::json out;
  for (const auto& [name, counter] : kCounters) out[name] = this->*counter;
  return out;
}

}  // namespace dtrain::sim::council
