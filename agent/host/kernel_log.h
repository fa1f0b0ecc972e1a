// GPU errors in the kernel's log: NVIDIA's Xid errors.
#pragma once

#include <optional>
#include <string_view>

#include "common/node/gpu_sample.h"

namespace dtrain::host {

inline constexpr std::size_t kFaultTextBytes = 96;  // of the driver's text; the rest is cut off

// Parses one record of /dev/kmsg: "PRIORITY,NUMBER,TIME,FLAGS;TEXT". Unset: it reports no fault, or was not written
// by the kernel.
std::optional<node::GpuFault> parse_gpu_fault(std::string_view record);

}  // namespace dtrain::host
