#include "common/node/gpu_ids.h"

#include <algorithm>
#include <string>

namespace dtrain::node {

job::GpuIds gpu_ids(const std::vector<Gpu>& host, const std::vector<std::uint32_t>& indices) {
  job::GpuIds ids;
  for (const std::uint32_t index : indices) {
    const auto found = std::ranges::find(host, index, &Gpu::index);
    const Gpu gpu = found == host.end() ? Gpu{} : *found;
    const bool by_number = gpu.uuid.empty();
    const std::string id = !by_number ? gpu.uuid : std::to_string(gpu.ordinal >= 0 ? static_cast<std::uint32_t>(gpu.ordinal) : index);
    if (gpu.vendor != "amd") {
      ids.cuda.push_back(id);
      ids.cuda_by_number = ids.cuda_by_number || by_number;
    }
    if (gpu.vendor != "nvidia") ids.rocr.push_back(id);
  }
  return ids;
}

}  // namespace dtrain::node
