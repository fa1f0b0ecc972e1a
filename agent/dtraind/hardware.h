// What the agent offers of its machine: CPUs, memory and GPUs, as found, pretended or read from a file.
#pragma once

#include "agent/dtraind/config.h"
#include "agent/dtraind/exit_code.h"
#include "common/base/log.h"
#include "common/node/event.h"

namespace dtrain::daemon {

// Fills in cpu_millis, memory_bytes (both after reserve), gpus and topology. A machine that cannot be
// discovered is one without GPUs, with a warning; a topology file that was named and cannot be read ends the
// start.
Start<void> gather_hardware(const Config& config, node::NodeFacts& facts, Log& log);

// For --check-config: whether the topology file, where one is named, can be read.
Start<void> check_topology(const Config& config);

}  // namespace dtrain::daemon
