#include "tests/sim/council/faults.h"

#include <array>

namespace dtrain::sim::council {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {
    "loss",      "duplicate",    "delay",    "crash",       "outage",     "reboot",         "pause",     "stall",
    "partition", "isolate",      "one-way",  "clock-drift", "slow-disk",  "disk-error",     "lost-disk", "old-disk",
    "resize",    "hasty-resize", "transfer", "gone",        "false-gone", "recover-quorum", "new-state"};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }
std::span<const std::string_view> fault_names(Fault) { return kNames; }

}  // namespace dtrain::sim::council
