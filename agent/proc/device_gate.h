// Keeps processes from opening devices, by their control group.
#pragma once

#include <string>

#include "common/base/result.h"

namespace dtrain::proc {

// Processes in this group of the unified hierarchy, and in all below it, open no devices from now on but those that every program needs:
// null, zero, full, random, urandom, terminals. For as long as the group is there.
Status close_devices(const std::string& cgroup);

}  // namespace dtrain::proc
