#include "tests/sim/lease/faults.h"

#include <array>

namespace dtrain::sim::lease {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {
    "loss",        "duplicate", "delay",      "slow-acks",   "slow-disk",         "slow-freeze", "partition",  "isolate",
    "flapping",    "one-way",   "shim-pause", "agent-pause", "coordinator-pause", "deposed",     "host-pause", "agent-kill",
    "wiped-store", "reboot",    "task-crash", "move",        "clock-drift"};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }
std::span<const std::string_view> fault_names(Fault) { return kNames; }

}  // namespace dtrain::sim::lease
