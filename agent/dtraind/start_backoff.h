// A service that cannot start is begun again every half second, for ever: a mistake in its configuration would fill the journal. So an
// agent whose starts failed in a row, none of them ready, waits before it tries: as long as systemd of Debian 12 cannot do it itself
// (RestartSteps= came later).
#pragma once

#include <string>

#include "common/base/time.h"

namespace dtrain::daemon {

inline constexpr int kStartsAtOnce = 3;  // that may fail before the next one waits
inline constexpr Duration kFirstStartDelay = 1s, kLongestStartDelay = 60s;

// How long the next start waits, after so many that failed in a row.
Duration start_delay(int failed);

class StartBackoff {
 public:
  // directory "": nothing is counted.
  explicit StartBackoff(const std::string& directory) : file_(directory.empty() ? "" : directory + "/failed-starts") {}
  // RUNTIME_DIRECTORY of the service; elsewhere nobody starts it again by itself.
  static StartBackoff of_service();

  // How many starts failed in a row before this one, which counts as failed until ready() is called.
  int begin() const;
  // Also by whoever stops it in the meantime: what comes then is somebody's wish.
  void ready() const;
  // Says why, and waits. False: SIGTERM or SIGINT came.
  bool wait(int failed) const;

 private:
  std::string file_;
};

}  // namespace dtrain::daemon
