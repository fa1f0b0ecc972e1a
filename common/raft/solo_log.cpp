#include "common/raft/solo_log.h"

#include <utility>

#include "common/base/check.h"

namespace dtrain::raft {

std::uint64_t SoloLog::propose(std::string payload) {
  waiting_.push_back({++last_, term_, std::move(payload)});
  return last_;
}

std::optional<std::vector<LogEntry>> SoloLog::take_batch() {
  if (in_flight() || waiting_.empty()) return std::nullopt;
  in_flight_ = std::exchange(waiting_, {});
  return in_flight_;
}

std::vector<LogEntry> SoloLog::persisted() {
  CHECK(in_flight());
  committed_ = in_flight_.back().index;
  return std::exchange(in_flight_, {});
}

}  // namespace dtrain::raft
