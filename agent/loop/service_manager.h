// What the service manager is told of this process (the protocol of sd_notify(3)): that it is ready, one line for people, and,
// where it asked for that (WatchdogSec= of the unit), a sign of life.
//
// A manager that is not there, or does not read, never holds anybody up: a message that cannot be sent at once is lost, and the
// next one says the same again (libsystemd's sd_notify() waits for one that does not read). Signs of life come
// kSignsPerWatchdog times in the time that the manager allows between two.
#pragma once

#include <string>

#include "agent/base/unique_fd.h"
#include "common/base/time.h"

namespace dtrain::loop {

inline constexpr Duration kTellEvery = 5s;  // longest time between two updates of the status line
inline constexpr int kSignsPerWatchdog = 3;
inline constexpr Duration kShortestTell = 100ms;   // shortest, whatever the manager asks for
inline constexpr std::size_t kStatusBytes = 1024;  // of the line; what is longer is cut

class ServiceManager {
 public:
  // Removes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment, so that no child can speak for this
  // process. Without NOTIFY_SOCKET every call below does nothing.
  static ServiceManager from_environment();

  bool listens() const { return static_cast<bool>(fd_); }
  // `status`: a line for people ("": none). After ready(), tell() must be called at deadline().
  void ready(Instant now, const std::string& status);
  void tell(Instant now, const std::string& status);
  // The last message: a later one would replace it.
  void stopping(const std::string& status);
  Instant deadline() const { return next_; }

 private:
  ServiceManager() = default;
  void send(std::string text, const std::string& status);

  UniqueFd fd_;
  std::string name_;  // of the manager's socket
  bool watches_ = false;
  Duration period_ = kTellEvery;
  Instant next_ = kNever;
  std::string said_;  // the line that the manager has
};

}  // namespace dtrain::loop
