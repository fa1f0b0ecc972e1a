// How a GPU is while the agent runs: what is measured (GpuSample) and what the kernel's log says (GpuFault). What follows from
// it: gpu_health.h
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrain::node {

struct GpuSample {
  std::string pci;
  std::string lost;                       // why it cannot be reached: "is not on the bus any more"; "": it can
  std::optional<std::int32_t> celsius;    // unset: not known, as all that follows
  std::optional<std::int32_t> slowdown;   // celsius at which the hardware slows itself down
  std::optional<std::uint64_t> uncorrected;  // memory errors that ECC saw and could not correct, since the driver was loaded
  // By its maker's library: why it tells nothing of the GPU, which may pass; "": it tells. Unset: it was not asked, or hangs.
  std::optional<std::string> refused;
  bool remap_pending = false;             // memory rows are to be replaced, which takes a reset of the GPU
  bool remap_failed = false;              // they could not be: no spare rows are left
  template <class V>
  void fields(V& v) {
    v("pci", pci);
    v("lost", lost);
    v("refused", refused);
    v("celsius", celsius);
    v("slowdown", slowdown);
    v("uncorrected", uncorrected);
    v("remap_pending", remap_pending);
    v("remap_failed", remap_failed);
  }
};

struct GpuFault {
  std::string pci;   // "": of which GPU is not said
  std::uint32_t xid = 0;  // NVIDIA's number of the error
  std::string text;  // what the log says of it; may be empty
  template <class V>
  void fields(V& v) {
    v("pci", pci);
    v("xid", xid);
    v("text", text);
  }
};

}  // namespace dtrain::node
