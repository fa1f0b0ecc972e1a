#include "tests/sim/council/figures.h"

#include "tests/sim/counters.h"

namespace dtrain::sim::council {
namespace {

constexpr Counter<Figures> kCounters[] = {
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
    {"followed", &Figures::followed},
    {"disk_errors", &Figures::disk_errors},
    {"crashes_in_persist", &Figures::crashes_in_persist},
};

}  // namespace

void Figures::join(const Figures& run) { join_counters(kCounters, *this, run); }

nlohmann::json Figures::json() const { return counters_json(kCounters, *this); }

}  // namespace dtrain::sim::council
