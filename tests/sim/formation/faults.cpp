#include "tests/sim/formation/faults.h"

#include <array>

namespace dtrain::sim::formation {
namespace {

constexpr std::array<std::string_view, kFaults> kNames = {"late-start", "loss",      "duplicate", "delay",   "ghost",
                                                          "crash",      "partition", "isolate",   "one-way", "slow-disk",
                                                          "disk-error", "lost-disk", "without"};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }
std::span<const std::string_view> fault_names(Fault) { return kNames; }

}  // namespace dtrain::sim::formation
