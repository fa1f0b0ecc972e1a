// The Launcher for hosts whose PID 1 is not systemd: shims are children of the agent, in cgroups that the agent makes (cgroup.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/proc/cgroup.h"
#include "agent/proc/launcher.h"

namespace dtrain::proc {

// `warn`: called once for each kind of failure to give a task its own CPUs; may be unset.
std::unique_ptr<Launcher> make_direct_launcher(std::string shim_path, Cgroups cgroups, std::function<void(const Error&)> warn);

}  // namespace dtrain::proc
