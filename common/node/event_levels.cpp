#include "common/node/event_levels.h"

#include <algorithm>
#include <array>

namespace dtrain::node {
namespace {

struct Level {
  std::string_view event;
  LogLevel level;
};
// Also in docs/events.md: tests/tidy/test_events.py compares them. Events that are not listed here have level info.
constexpr std::array kLevels{
    Level{"job.failed", LogLevel::error},
    Level{"job.recovering", LogLevel::warn},
    Level{"job.stands-still", LogLevel::warn},
    Level{"job.waits", LogLevel::warn},
    Level{"task.failed", LogLevel::warn},
    Level{"task.frozen", LogLevel::warn},
    Level{"task.lost", LogLevel::warn},
    Level{"task.stage-failed", LogLevel::warn},
    Level{"host.lost", LogLevel::warn},
    Level{"checkpoint.damaged", LogLevel::warn},
    Level{"checkpoint.quarantined", LogLevel::warn},
    Level{"checkpoint.unrecognised", LogLevel::warn},
};

}  // namespace

LogLevel level_of(std::string_view event) {
  const auto found = std::ranges::find(kLevels, event, &Level::event);
  return found == kLevels.end() ? LogLevel::info : found->level;
}

}  // namespace dtrain::node
