// The Runner of real hosts: manages shims, whichever launcher starts them (launcher.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "agent/base/epoll.h"
#include "agent/proc/launcher.h"
#include "agent/proc/runner.h"
#include "common/base/result.h"

namespace dtrain::proc {

// Makes a launcher of a runner. It may wait for descriptors of its own in `poller`, under `tag`: its dispatch() is called when one is
// ready.
using MakeLauncher = std::function<Result<std::unique_ptr<Launcher>>(const RunnerOptions& options, Epoll& poller, std::uint64_t tag)>;

// For hosts whose PID 1 is not systemd (laptops, containers, CI): the agent launches the shims itself (direct_launcher.h).
Result<std::unique_ptr<Launcher>> direct_launcher(const RunnerOptions& options, Epoll& poller, std::uint64_t tag);

// For hosts whose PID 1 is systemd, which starts each shim as a service of its own (systemd_launcher.h). options.cgroup is ignored. Fails
// as `unavailable` if systemd cannot be used.
Result<std::unique_ptr<Launcher>> systemd_launcher(const RunnerOptions& options, Epoll& poller, std::uint64_t tag);

// True if this host's PID 1 is a systemd from which this process may order services.
bool systemd_is_here();

// Each assignment is launched by the first of `launchers`, of which there is at least one, that takes it. Fails on an unusable tasks
// directory, a missing shim, an unknown ulimit, or if a launcher cannot be made. Destroying a runner ends no task.
Result<std::unique_ptr<Runner>> make_runner(RunnerOptions options, const std::vector<MakeLauncher>& launchers);

}  // namespace dtrain::proc
