// The Runner of real hosts: manages shims, whichever launcher starts them (launcher.h).
#pragma once

#include <memory>

#include "agent/proc/runner.h"
#include "common/base/result.h"

namespace dtrain::proc {

// For hosts whose PID 1 is not systemd (laptops, containers, CI): the agent launches the shims itself. Fails on an
// unusable tasks directory, a missing shim or an unknown ulimit. Destroying a runner ends no task.
Result<std::unique_ptr<Runner>> make_direct_runner(RunnerOptions options);

// True if this host's PID 1 is a systemd from which this process may order services.
bool systemd_is_here();

// For hosts whose PID 1 is systemd, which starts each shim as a service of its own (systemd_launcher.h). Fails also
// if systemd cannot be used; options.cgroup is ignored.
Result<std::unique_ptr<Runner>> make_systemd_runner(RunnerOptions options);

}  // namespace dtrain::proc
