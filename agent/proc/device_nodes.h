// The device nodes of GPUs and of their drivers: what a task may open that is confined to its own GPUs.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

// The node of this GPU alone; its minor number must be known.
std::string own_device_node(const task::OwnGpu& gpu);

// In the form of systemd's DeviceAllow=: paths, and char-NAME for all devices of a driver; each once. Fails if the
// nodes of a GPU are not known or its driver is not ready, because denying all others would then deny too much. Asks
// no driver, which a sick GPU may block: the nodes' numbers are known from discovery.
Result<std::vector<std::string>> device_nodes(const std::vector<task::OwnGpu>& gpus, const std::string& root = "");

// Those of these GPUs and their drivers that are there, for a place that has only the nodes which it is given.
std::vector<std::string> present_nodes(const std::vector<task::OwnGpu>& gpus, const std::string& root = "");

}  // namespace dtrain::proc
