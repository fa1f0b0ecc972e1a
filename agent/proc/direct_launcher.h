// The Launcher for hosts whose PID 1 is not systemd: shims are children of the agent, in cgroups that it makes (cgroup.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/proc/cgroup.h"
#include "agent/proc/launcher.h"

namespace dtrain::proc {

// `warn`: of CPUs that a task was given and does not have, once for each kind; may be unset.
std::unique_ptr<Launcher> make_direct_launcher(std::string shim_path, Cgroups cgroups, std::function<void(const Error&)> warn);

}  // namespace dtrain::proc
