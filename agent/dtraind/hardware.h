// What the agent offers of its machine: CPUs, memory and GPUs, as found, pretended or read from a file.
#pragma once

#include <optional>

#include "agent/dtraind/config.h"
#include "agent/dtraind/exit_code.h"
#include "agent/dtraind/layout.h"
#include "agent/host/gpu_watch.h"
#include "common/base/log.h"
#include "common/node/event.h"

namespace dtrain::daemon {

// Fills in cpu_millis, memory_bytes (both without resources.reserve), cpus (if tasks are bound to CPUs), gpus and
// what is known of the topology. A machine that cannot be discovered counts as one without GPUs, with a warning; a
// configured topology file that cannot be read ends the start. The numbers of the GPUs are stored in
// layout.gpus_file(), so that a number always means the same card.
//
// Returns how the GPUs are to be watched from then on; unset: this machine has none of its own.
Start<std::optional<host::GpuWatch::Options>> gather_hardware(const Config& config, const Layout& layout, node::NodeFacts& facts, Log& log);

// For --check-config: checks that a configured topology file can be read.
Start<void> check_topology(const Config& config);

}  // namespace dtrain::daemon
