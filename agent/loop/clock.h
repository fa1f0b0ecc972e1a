// Where the agent's loop reads the clocks.
#pragma once

#include "common/base/time.h"

namespace dtrain::loop {

// CLOCK_BOOTTIME and CLOCK_REALTIME of this moment.
Now read_clocks();

}  // namespace dtrain::loop
