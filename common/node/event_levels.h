// With which priority an event of the history stands in the agent's log: what an operator would filter by (docs/events.md).
#pragma once

#include <string_view>

#include "common/base/log.h"

namespace dtrain::node {

LogLevel level_of(std::string_view event);

}  // namespace dtrain::node
