#include "agent/dtraind/start_backoff.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

namespace dtrain::daemon {

Duration start_delay(int failed) {
  if (failed < kStartsAtOnce) return Duration{0};
  constexpr int kDoublings = 6;  // after so many doublings the delay is the longest
  return std::min<Duration>(kLongestStartDelay, kFirstStartDelay * (1 << std::min(failed - kStartsAtOnce, kDoublings)));
}

StartBackoff StartBackoff::of_service() {
  const char* const directory = ::getenv("RUNTIME_DIRECTORY");
  const char* const invocation = ::getenv("INVOCATION_ID");
  return StartBackoff(directory != nullptr && invocation != nullptr ? directory : "");
}

int StartBackoff::begin() const {
  if (file_.empty()) return 0;
  int failed = 0;
  if (std::ifstream before(file_); !(before >> failed) || failed < 0) failed = 0;
  // If the file cannot be written, nothing is counted.
  std::ofstream(file_, std::ios::trunc) << failed + 1 << "\n";
  return failed;
}

void StartBackoff::ready() const {
  if (!file_.empty()) ::unlink(file_.c_str());
}

bool StartBackoff::wait(int failed) const {
  const Duration delay = start_delay(failed);
  if (delay == Duration{0}) return true;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(delay).count();
  sigset_t ends, before;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::sigprocmask(SIG_BLOCK, &ends, &before);
  std::fprintf(stderr, "dtraind: %d starts in a row failed: the next try is in %lld s; systemctl restart dtraind tries at once\n", failed,
               static_cast<long long>(seconds));
  const timespec time{static_cast<time_t>(seconds), 0};
  const bool stopped = ::sigtimedwait(&ends, nullptr, &time) > 0;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (stopped) ready();
  return !stopped;
}

}  // namespace dtrain::daemon
