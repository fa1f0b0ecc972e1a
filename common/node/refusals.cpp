#include "common/node/refusals.h"

#include <algorithm>

namespace dtrain::node {

Refusals::Summary Refusals::report(State& state, Instant now) {
  state.quiet_until = now + kRefusalEvery;
  state.held_back = false;
  return state.newest;
}

std::optional<Refusals::Summary> Refusals::refused(Instant now, const Caller& caller, const std::string& reason) {
  const Key key = key_of(caller);
  if (callers_.size() >= kRefusedCallers && !callers_.contains(key))
    callers_.erase(std::ranges::min_element(callers_, {}, [](const auto& entry) { return entry.second.quiet_until; }));
  State& state = callers_[key];
  state.newest.caller = caller;
  state.newest.reason = reason.substr(0, kRefusalBytes);
  ++state.newest.count;
  if (state.quiet_until <= now) return report(state, now);
  state.held_back = true;
  return std::nullopt;
}

std::vector<Refusals::Summary> Refusals::due(Instant now) {
  std::vector<Summary> reports;
  for (auto& [key, state] : callers_)
    if (state.held_back && state.quiet_until <= now) reports.push_back(report(state, now));
  return reports;
}

void Refusals::told(const Caller& caller, std::uint64_t event) {
  if (const auto found = callers_.find(key_of(caller)); found != callers_.end()) found->second.newest.said_as = event;
}

Instant Refusals::deadline() const {
  Instant earliest = kNever;
  for (const auto& [key, state] : callers_)
    if (state.held_back) earliest = std::min(earliest, state.quiet_until);
  return earliest;
}

}  // namespace dtrain::node
