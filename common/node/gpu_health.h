// Decides which GPUs of this host are sick, from measurements and from the kernel's log. A sick GPU gets no further task;
// a task that runs on it runs on until it ends by itself.
//
// A GPU is sick at once if it cannot be reached, if ECC could not correct memory errors, if memory rows are to be
// replaced, or if an Xid means the GPU itself (kSickXids) rather than the program on it. A GPU is sick after some samples
// in a row, and well again after some, if it is so hot that it slows itself down (kHotSamples, kCoolSamples), or if its
// maker's library refuses to report on it, as while the driver is reloaded (kMuteSamples, kToldSamples). From anything
// else it recovers only with a new life of the agent, because that takes a reset of the GPU, which a person decides.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/node/gpu_sample.h"

namespace dtrain::node {

inline constexpr unsigned kHotSamples = 3, kCoolSamples = 5;
inline constexpr unsigned kMuteSamples = 3, kToldSamples = 5;

// Source: NVIDIA, "Xid Errors": double bit ECC error; halt of a micro-controller; row remapping or page retirement,
// and its failure; NVLink; fallen off the bus; ECC error contained, and not contained; GSP time-out and error;
// unrecovered ECC error. Other Xids are mostly errors of the program (13, 31, 43, 45).
inline constexpr std::array<std::uint32_t, 11> kSickXids{48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140};

std::string describe(const GpuFault& fault);  // "Xid 79: GPU has fallen off the bus"

class GpuHealth {
 public:
  struct Change {
    std::string pci, reason;  // reason: why the GPU is sick from now on; "": it is well again
  };
  std::vector<Change> sampled(const std::vector<GpuSample>& samples);
  std::optional<Change> faulted(const GpuFault& fault);

 private:
  struct State {
    unsigned hot = 0, cool = 0, mute = 0, told = 0;  // numbers of samples in a row
    bool broken = false;                             // sick until the agent's next life; the change was reported
    std::string heat, silence;                       // why it is sick for now; "": it is not, for this reason
    std::string said;                                // whichever of `heat` and `silence` was reported last
  };
  std::map<std::string, State> gpus_;  // by PCI address; one host has few
};

}  // namespace dtrain::node
