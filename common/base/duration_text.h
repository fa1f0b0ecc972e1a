// How long something may take, or took, for people to read. What is written into job files: job::format_duration().
#pragma once

#include <string>

#include "common/base/time.h"

namespace dtrain {

// Whole seconds as such, all else in milliseconds, of which parts are cut off: "0 s", "90 s", "300 ms", "1500 ms", "-5 s".
std::string duration_text(Duration duration);

}  // namespace dtrain
