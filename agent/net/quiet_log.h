// Writes a line about one cause once a minute, however often it happens, so that strangers cannot fill the log.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/log.h"
#include "common/base/time.h"

namespace dtrain::net {

inline constexpr Duration kQuietPeriod = 60s;     // between two lines about the same cause
inline constexpr std::size_t kQuietCauses = 512;  // causes remembered; new ones beyond that wait for the next minute

class QuietLog {
 public:
  explicit QuietLog(Log& log) : log_(log) {}
  // The cause is event, reason and address. The line has count=: occurrences since the last line.
  void warn(Instant now, std::string_view event, const std::string& reason, const std::string& address, const std::string& next);

 private:
  struct Cause {
    Instant said{};
    std::uint64_t count = 0;  // since the last line
  };
  void forget(Instant now);
  Log& log_;
  std::map<std::string, Cause> causes_;
  Instant swept_{};
};

}  // namespace dtrain::net
