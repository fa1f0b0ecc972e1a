// By which names a task finds its GPUs: its environment's CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES.
#pragma once

#include <cstdint>
#include <vector>

#include "common/job/cluster_spec.h"
#include "common/node/host_facts.h"

namespace dtrain::node {

// Of the GPUs with these numbers: NVIDIA's for CUDA, AMD's for ROCm; one that is of neither (pretended, or not known) for both. By
// UUID; where that is not known (a driver may learn it at the first use) by the number that the maker's own runtime counts to.
job::GpuIds gpu_ids(const std::vector<Gpu>& host, const std::vector<std::uint32_t>& indices);

}  // namespace dtrain::node
