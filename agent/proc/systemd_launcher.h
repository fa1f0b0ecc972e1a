// The Launcher for hosts whose PID 1 is systemd: each shim is the main process of a transient service of its own (unit_properties.h),
// in dtrain.slice. What systemd says it took is compared with what is in force (took_effect.h).
#pragma once

#include <memory>

#include "agent/base/epoll.h"
#include "agent/proc/launcher.h"
#include "agent/proc/runner.h"
#include "agent/proc/system_bus.h"

namespace dtrain::proc {

// Shims that are starting at once: enough to keep systemd busy, few enough that each comes up in time.
inline constexpr std::size_t kMostStarting = 8;

// `tag`: of the launcher's own descriptor in `poller`. Fails where systemd cannot be used, with the reason.
Result<std::unique_ptr<Launcher>> make_systemd_launcher(const RunnerOptions& options, Epoll& poller, std::uint64_t tag);

// The same over a bus of the caller's. `slice`, `memory_slice`: directories of dtrain.slice in the unified hierarchy, and in that of memory
// of version 1 ("": there is none).
std::unique_ptr<Launcher> make_systemd_launcher(const RunnerOptions& options, std::unique_ptr<SystemBus> bus, std::string slice,
                                                std::string memory_slice);

}  // namespace dtrain::proc
