#include "tests/sim/membership/faults.h"

#include <array>

namespace dtrain::sim::membership {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {
    "loss",      "duplicate", "crash",       "host-crash",    "restart", "stop",         "reboot",       "address-change",
    "lost-disk", "old-disk",  "copied-disk", "name-conflict", "pause",   "stall-third",  "partition",    "isolate",
    "one-way",   "flip-flop", "clock-drift", "leave",         "churn",   "mass-restart", "other-cluster"};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }
std::span<const std::string_view> fault_names(Fault) { return kNames; }

}  // namespace dtrain::sim::membership
