#include "common/node/gpu_health.h"

#include <algorithm>

namespace dtrain::node {
namespace {

// For good; "": nothing.
std::string broken(const GpuSample& sample) {
  if (!sample.lost.empty()) return sample.lost;
  if (const std::uint64_t errors = sample.uncorrected.value_or(0); errors > 0)
    return std::to_string(errors) + (errors == 1 ? " memory error" : " memory errors") + " that ECC could not correct";
  if (sample.remap_failed) return "memory rows could not be replaced";
  if (sample.remap_pending) return "memory rows are to be replaced at its next reset";
  return "";
}

bool is_hot(const GpuSample& sample) {
  return sample.celsius && sample.slowdown && *sample.celsius >= *sample.slowdown;
}

}  // namespace

std::string describe(const GpuFault& fault) {
  return "Xid " + std::to_string(fault.xid) + (fault.text.empty() ? "" : ": " + fault.text);
}

std::vector<GpuHealth::Change> GpuHealth::sampled(const std::vector<GpuSample>& samples) {
  std::vector<Change> changes;
  for (const GpuSample& sample : samples) {
    State& gpu = gpus_[sample.pci];
    const bool hot = is_hot(sample);
    gpu.hot = hot ? gpu.hot + 1 : 0;
    gpu.cool = hot || !sample.celsius ? 0 : gpu.cool + 1;
    if (gpu.sick && !gpu.of_heat) continue;
    if (const std::string reason = broken(sample); !reason.empty()) {
      gpu.sick = true;
      gpu.of_heat = false;
      changes.push_back({sample.pci, reason});
    } else if (!gpu.sick && gpu.hot >= kHotSamples) {
      gpu.sick = gpu.of_heat = true;
      changes.push_back({sample.pci, "too hot: " + std::to_string(*sample.celsius) + " C, it slows itself down at " +
                                         std::to_string(*sample.slowdown) + " C"});
    } else if (gpu.sick && gpu.cool >= kCoolSamples) {
      gpu.sick = gpu.of_heat = false;
      changes.push_back({sample.pci, ""});
    }
  }
  return changes;
}

std::optional<GpuHealth::Change> GpuHealth::faulted(const GpuFault& fault) {
  if (fault.pci.empty() || std::ranges::find(kSickXids, fault.xid) == kSickXids.end()) return std::nullopt;
  State& gpu = gpus_[fault.pci];
  if (gpu.sick && !gpu.of_heat) return std::nullopt;
  gpu.sick = true;
  gpu.of_heat = false;
  return Change{fault.pci, describe(fault)};
}

}  // namespace dtrain::node
