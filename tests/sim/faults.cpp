#include "tests/sim/faults.h"

namespace dtrain::sim {
namespace {

constexpr std::array<std::string_view, kFaultCount> kNames = {
    "task-kill", "shim-kill",  "agent-kill", "reboot",            "disk-error",  "slow-disk",
    "full-disk", "clock-jump", "pause",      "checkpoint-damage", "stage-error", "gpu-held",
    "coordinator-kill", "partition", "isolate", "one-way", "loss", "duplicate", "delay", "drain", "quorum-lost",
    "host-stop", "upgrade"};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }

std::span<const std::string_view> fault_names(Fault) { return kNames; }

}  // namespace dtrain::sim
