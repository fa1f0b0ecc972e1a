// Which GPUs of this host are sick, from what is measured and what the kernel's log says. A sick one is given to no further task;
// one that runs on it runs on, and its own end decides.
//
// Sick at once: it cannot be reached; memory errors that ECC could not correct; memory rows to be replaced; an Xid that means
// the GPU (kSickXids), not the program that ran on it. Sick after some samples in a row, and well again after some: as hot as it
// slows itself down at (kHotSamples, kCoolSamples); its maker's library refuses to tell of it, as while its driver is reloaded
// (kMuteSamples, kToldSamples). Of all else it gets well only with a new life of the agent, since it takes a reset of the GPU, which
// is a person's decision.
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

// NVIDIA, "Xid Errors": double bit ECC error; halt of a micro-controller; row remapping or page retirement, and its failure; NVLink;
// fallen off the bus; ECC error contained, and not contained; GSP time-out and error; unrecovered ECC error. Others are mostly
// the program's own (13, 31, 43, 45).
inline constexpr std::array<std::uint32_t, 11> kSickXids{48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140};

std::string describe(const GpuFault& fault);  // "Xid 79: GPU has fallen off the bus"

class GpuHealth {
 public:
  struct Change {
    std::string pci, reason;  // why it is sick from now on; "": it is well again
  };
  std::vector<Change> sampled(const std::vector<GpuSample>& samples);
  std::optional<Change> faulted(const GpuFault& fault);

 private:
  struct State {
    unsigned hot = 0, cool = 0, mute = 0, told = 0;  // samples in a row
    bool broken = false;                             // for good, which was said
    std::string heat, silence;                       // why it is sick for now; "": not of that
    std::string said;                                // of the two, what was said last
  };
  std::map<std::string, State> gpus_;  // by PCI address; of one host, so few
};

}  // namespace dtrain::node
