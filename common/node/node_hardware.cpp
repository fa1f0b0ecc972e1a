// What Node does with the health of its host's GPUs.
#include <algorithm>

#include "common/node/node_impl.h"

namespace dtrain::node {

void Node::Impl::gpu_changed(const GpuHealth::Change& change) {
  const auto gpu = std::ranges::find(c.facts.gpus, change.pci, &Gpu::pci);
  if (gpu == c.facts.gpus.end()) return;  // excluded: it is nobody's
  const bool sick = !change.reason.empty();
  if (gpu->healthy == !sick) return;      // it was not, already when the agent started
  gpu->healthy = !sick;
  gpu->reason = change.reason;
  const std::string which = "GPU " + std::to_string(gpu->index) + " (" + gpu->pci + ")";
  members.tell(sick ? "gpu.sick" : "gpu.well", sick ? which + ": " + change.reason : which);
}

void Node::Impl::gpus_sampled(const GpusSampled& e) {
  for (const GpuHealth::Change& change : gpu_health.sampled(e.gpus)) gpu_changed(change);
}

void Node::Impl::gpu_faulted(const GpuFaulted& e) {
  c.log.write(LogLevel::warn, "gpu.fault", {{"gpu", e.fault.pci}, {"xid", std::to_string(e.fault.xid)}, {"text", e.fault.text}});
  if (const auto change = gpu_health.faulted(e.fault)) gpu_changed(*change);
}

}  // namespace dtrain::node
