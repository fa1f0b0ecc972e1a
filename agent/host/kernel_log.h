// What the kernel's log says of GPUs: NVIDIA's Xid errors.
#pragma once

#include <optional>
#include <string_view>

#include "common/node/gpu_sample.h"

namespace dtrain::host {

inline constexpr std::size_t kFaultTextBytes = 96;  // of what the driver says; longer: cut

// Of one record of /dev/kmsg: "PRIORITY,NUMBER,TIME,FLAGS;TEXT". Unset: it tells of none, or not the kernel wrote it.
std::optional<node::GpuFault> parse_gpu_fault(std::string_view record);

}  // namespace dtrain::host
