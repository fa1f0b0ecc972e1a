// The state of a GPU while the agent runs: measurements (GpuSample) and reports of the kernel's log (GpuFault).
// gpu_health.h judges them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrain::node {

struct GpuSample {
  std::string pci;
  std::string lost;                          // why it cannot be reached: "is not on the bus any more"; "": it can
  std::optional<std::int32_t> celsius;       // unset: not known; likewise below
  std::optional<std::int32_t> slowdown;      // temperature in celsius at which the hardware slows itself down
  std::optional<std::uint64_t> uncorrected;  // memory errors that ECC saw and could not correct since the driver was loaded
  // Why its maker's library does not report on the GPU, which may pass; "": the library reports. Unset: the library
  // was not asked, or hangs.
  std::optional<std::string> refused;
  bool remap_pending = false;  // memory rows are to be replaced, which takes a reset of the GPU
  bool remap_failed = false;   // memory rows could not be replaced: there are no spare rows left
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
  std::string pci;        // "": the log does not name the GPU
  std::uint32_t xid = 0;  // NVIDIA's error number
  std::string text;       // the log's text; may be empty
  template <class V>
  void fields(V& v) {
    v("pci", pci);
    v("xid", xid);
    v("text", text);
  }
};

}  // namespace dtrain::node
