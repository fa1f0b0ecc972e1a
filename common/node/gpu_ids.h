// The names by which a task finds its GPUs: CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES in its environment.
#pragma once

#include <cstdint>
#include <vector>

#include "common/job/cluster_spec.h"
#include "common/node/host_facts.h"

namespace dtrain::node {

// For the GPUs with these indices: NVIDIA's for CUDA, AMD's for ROCm, and those of neither maker (pretended or
// unknown) for both. Each is named by its UUID, or by the ordinal of its maker's runtime while the UUID is not known
// (a driver may learn it only at the first use).
job::GpuIds gpu_ids(const std::vector<Gpu>& host, const std::vector<std::uint32_t>& indices);

}  // namespace dtrain::node
