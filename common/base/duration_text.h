// Formats how long something may take, or took, for people. For durations in job files: job::format_duration().
#pragma once

#include <string>

#include "common/base/time.h"

namespace dtrain {

// Whole seconds in seconds, all else in milliseconds, rounded towards zero: "0 s", "90 s", "300 ms", "1500 ms", "-5 s".
std::string duration_text(Duration duration);

}  // namespace dtrain
