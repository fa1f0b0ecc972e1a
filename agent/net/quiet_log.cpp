#include "agent/net/quiet_log.h"

namespace dtrain::net {

void QuietLog::forget(Instant now) {
  if (now - swept_ < kQuietPeriod) return;  // in a flood of causes, not every line may cost a pass over all
  swept_ = now;
  std::erase_if(causes_, [&](const auto& entry) { return now - entry.second.said >= kQuietPeriod && entry.second.count == 0; });
  // Causes that were counted but are over get no line of their own; the next line of the same cause carries the count.
  if (causes_.size() >= kQuietCauses) std::erase_if(causes_, [&](const auto& entry) { return now - entry.second.said >= kQuietPeriod; });
}

void QuietLog::warn(Instant now, std::string_view event, const std::string& reason, const std::string& address, const std::string& next) {
  std::string key(event);
  key.append(1, ' ').append(reason).append(1, ' ').append(address);
  auto found = causes_.find(key);
  if (found == causes_.end()) {
    if (causes_.size() >= kQuietCauses) forget(now);
    if (causes_.size() >= kQuietCauses) return;
    found = causes_.emplace(std::move(key), Cause{now, 0}).first;
  } else if (now - found->second.said < kQuietPeriod) {
    ++found->second.count;
    return;
  }
  const std::string count = std::to_string(found->second.count + 1);
  found->second = {now, 0};
  log_.write(LogLevel::warn, event, {{"reason", reason}, {"from", address}, {"count", count}, {"next", next}});
}

}  // namespace dtrain::net
