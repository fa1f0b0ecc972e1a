#include "common/node/gpu_health.h"

#include <algorithm>

namespace dtrain::node {
namespace {

// Why the GPU is sick for good; "": it is not.
std::string broken(const GpuSample& sample) {
  if (!sample.lost.empty()) return sample.lost;
  if (const std::uint64_t errors = sample.uncorrected.value_or(0); errors > 0)
    return std::to_string(errors) + (errors == 1 ? " memory error" : " memory errors") + " that ECC could not correct";
  if (sample.remap_failed) return "memory rows could not be replaced";
  if (sample.remap_pending) return "memory rows are to be replaced at its next reset";
  return "";
}

bool is_hot(const GpuSample& sample) { return sample.celsius && sample.slowdown && *sample.celsius >= *sample.slowdown; }

}  // namespace

std::string describe(const GpuFault& fault) { return "Xid " + std::to_string(fault.xid) + (fault.text.empty() ? "" : ": " + fault.text); }

std::vector<GpuHealth::Change> GpuHealth::sampled(const std::vector<GpuSample>& samples) {
  std::vector<Change> changes;
  for (const GpuSample& sample : samples) {
    State& gpu = gpus_[sample.pci];
    if (gpu.broken) continue;
    if (const std::string reason = broken(sample); !reason.empty()) {
      gpu.broken = true;
      changes.push_back({sample.pci, reason});
      continue;
    }
    const bool hot = is_hot(sample);
    gpu.hot = hot ? gpu.hot + 1 : 0;
    gpu.cool = hot || !sample.celsius ? 0 : gpu.cool + 1;
    if (gpu.heat.empty() && gpu.hot >= kHotSamples)
      gpu.heat = "too hot: " + std::to_string(*sample.celsius) + " C, it slows itself down at " + std::to_string(*sample.slowdown) + " C";
    else if (gpu.cool >= kCoolSamples) gpu.heat.clear();
    if (sample.refused) {
      gpu.mute = sample.refused->empty() ? 0 : gpu.mute + 1;
      gpu.told = sample.refused->empty() ? gpu.told + 1 : 0;
      if (gpu.silence.empty() && gpu.mute >= kMuteSamples) gpu.silence = *sample.refused;
      else if (gpu.told >= kToldSamples) gpu.silence.clear();
    }
    const std::string& reason = gpu.silence.empty() ? gpu.heat : gpu.silence;
    if (reason == gpu.said) continue;
    gpu.said = reason;
    changes.push_back({sample.pci, reason});
  }
  return changes;
}

std::optional<GpuHealth::Change> GpuHealth::faulted(const GpuFault& fault) {
  if (fault.pci.empty() || std::ranges::find(kSickXids, fault.xid) == kSickXids.end()) return std::nullopt;
  State& gpu = gpus_[fault.pci];
  if (gpu.broken) return std::nullopt;
  gpu.broken = true;
  return Change{fault.pci, describe(fault)};
}

}  // namespace dtrain::node
