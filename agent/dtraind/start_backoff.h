// systemd restarts a service that cannot start every half second, for ever: a mistake in its configuration would fill
// the journal. So an agent whose previous starts failed, none of them ready, waits before it tries, because Debian
// 12's systemd cannot do that itself (RestartSteps= came later).
#pragma once

#include <string>

#include "common/base/time.h"

namespace dtrain::daemon {

inline constexpr int kStartsAtOnce = 3;  // starts that may fail before the next one waits
inline constexpr Duration kFirstStartDelay = 1s, kLongestStartDelay = 60s;

// How long the next start waits after so many failures in a row.
Duration start_delay(int failed);

class StartBackoff {
 public:
  // directory "": nothing is counted.
  explicit StartBackoff(const std::string& directory) : file_(directory.empty() ? "" : directory + "/failed-starts") {}
  // Uses RUNTIME_DIRECTORY of the service; an agent that is no service is not restarted.
  static StartBackoff of_service();

  // Returns how many starts failed in a row before this one, which counts as failed until ready() is called.
  int begin() const;
  // Also to be called when somebody stops the agent meanwhile: the next start is then intended.
  void ready() const;
  // Logs why it waits, and waits. Returns false if SIGTERM or SIGINT came.
  bool wait(int failed) const;

 private:
  std::string file_;
};

}  // namespace dtrain::daemon
