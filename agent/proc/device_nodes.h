// The device nodes of GPUs, and what their drivers need beside them: what a task that may open its own GPUs alone is let open.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

// The node that is the GPU's alone; its minor number is known.
std::string own_device_node(const task::OwnGpu& gpu);

// In the words of systemd's DeviceAllow=: paths, and char-NAME for all devices of a driver. Each once. Fails where the nodes of one of
// them cannot be told, or its driver is not ready: who then denies the rest denies too much. Asks no driver, which a sick GPU may hold
// up: numbers of nodes are known from discovery.
Result<std::vector<std::string>> device_nodes(const std::vector<task::OwnGpu>& gpus, const std::string& root = "");

}  // namespace dtrain::proc
