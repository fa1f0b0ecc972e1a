// The Launcher for hosts whose PID 1 is systemd: each shim is the main process of a transient service of its own (unit_properties.h),
// in dtrain.slice. What systemd says it took is compared with what is in force (took_effect.h).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/proc/launcher.h"
#include "agent/proc/poller.h"

namespace dtrain::proc {

// Shims that are starting at once: enough to keep systemd busy, few enough that each comes up in time.
inline constexpr std::size_t kMostStarting = 8;

// `tag`: of the launcher's own descriptor in `poller`. Fails where systemd cannot be used, with the reason.
Result<std::unique_ptr<Launcher>> make_systemd_launcher(std::string shim_path, Poller& poller, std::uint64_t tag,
                                                        std::function<void(const Error&)> warn);

}  // namespace dtrain::proc
