// The first broken invariant of a run.
#pragma once

#include <cstdio>
#include <string>

#include "common/base/time.h"

namespace dtrain::sim {

struct Violation {
  std::string invariant, what;
  Instant at{};
};

inline std::string seconds_text(Instant at) {  // "12.034567s"
  char text[40];
  std::snprintf(text, sizeof text, "%.6fs", std::chrono::duration<double>(at.time_since_epoch()).count());
  return text;
}

}  // namespace dtrain::sim
