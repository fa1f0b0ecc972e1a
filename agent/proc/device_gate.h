// Keeps processes from opening devices, by their control group.
#pragma once

#include <string>

#include "common/base/result.h"

namespace dtrain::proc {

// From now on, as long as the group exists, processes in this group of the unified hierarchy, and in all below it,
// can open no devices except those that every program needs: null, zero, full, random, urandom, terminals.
Status close_devices(const std::string& cgroup);

}  // namespace dtrain::proc
