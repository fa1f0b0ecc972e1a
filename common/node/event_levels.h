// The priority of an event of the history in the agent's log, by which operators filter (docs/events.md).
#pragma once

#include <string_view>

#include "common/base/log.h"

namespace dtrain::node {

LogLevel level_of(std::string_view event);

}  // namespace dtrain::node
