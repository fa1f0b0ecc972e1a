// Finds out everything about a machine, in one or two answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/dtrain-discover/topology.h"
#include "agent/host/machine.h"

namespace dtrain::discover {

struct Request {
  Source source;
  std::vector<std::string> exclude;   // GPUs, by PCI address or index
  std::vector<host::KnownGpu> known;  // the numbers that GPUs have already
  std::string nvml;                   // library to ask; "": this machine's, if it may have NVIDIA GPUs
};

// Calls `answer` once, or twice if NVML is asked (agent/host/machine.h).
void discover(const Request& request, const std::function<void(const host::Machine&)>& answer);

}  // namespace dtrain::discover
