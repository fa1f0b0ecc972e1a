// Refusals for want of rights, reported without letting a caller fill the logs: each caller's first refusal at once,
// later ones at most once in kRefusalEvery with their number. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/time.h"
#include "common/node/event.h"

namespace dtrain::node {

inline constexpr Duration kRefusalEvery = 60s;
inline constexpr std::size_t kRefusalBytes = 256;  // of the reason; the rest is cut off
// callers remembered; beyond, the caller that was not refused for longest is forgotten
inline constexpr std::size_t kRefusedCallers = 256;

class Refusals {
 public:
  struct Summary {
    Caller caller;
    std::string reason;         // of the newest refusal
    std::uint64_t count = 0;    // refusals since the agent's start, or since the caller was forgotten
    std::uint64_t said_as = 0;  // number of the event of the report before, which this one supersedes; 0: none
  };
  // Counts a refusal. Returns the report to make now, or nullopt if the caller was reported lately; due() reports it later.
  std::optional<Summary> refused(Instant now, const Caller& caller, const std::string& reason);
  // Returns reports of callers that were refused again after their last report, once kRefusalEvery is over.
  std::vector<Summary> due(Instant now);
  // Remembers the number (LocalEvents) of that caller's newest report.
  void told(const Caller& caller, std::uint64_t event);
  Instant deadline() const;  // when due() has something; kNever: nothing is held back

 private:
  using Key = std::pair<std::string, std::uint32_t>;  // name and uid, since the same uid on another host may be somebody else's
  struct State {
    Summary newest;
    Instant quiet_until{};
    bool held_back = false;
  };
  static Key key_of(const Caller& caller) { return {caller.user, caller.uid}; }
  Summary report(State& state, Instant now);

  std::map<Key, State> callers_;
};

}  // namespace dtrain::node
