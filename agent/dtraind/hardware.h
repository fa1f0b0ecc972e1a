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

// Fills in cpu_millis, memory_bytes (both after reserve), cpus (where tasks are to be bound to them), gpus and what is known of the
// topology. A machine that cannot be discovered is one without GPUs, with a warning; a topology file that was named and cannot be read ends
// the start. The numbers of the GPUs are kept in layout.gpus_file(), so that they never come to mean other cards.
//
// Answers how the GPUs are to be watched from then on; unset: there are none of this machine's own.
Start<std::optional<host::GpuWatch::Options>> gather_hardware(const Config& config, const Layout& layout, node::NodeFacts& facts, Log& log);

// For --check-config: whether the topology file, where one is named, can be read.
Start<void> check_topology(const Config& config);

}  // namespace dtrain::daemon
