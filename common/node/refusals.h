// What callers were refused for want of rights, so that it can be said without being a way to fill logs: of each caller at once, then
// at most once in kRefusalEvery, with how often it was in all. Pure.
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
inline constexpr std::size_t kRefusalBytes = 256;    // of its text; the rest is cut off
inline constexpr std::size_t kRefusedCallers = 256;  // of so many that is remembered: beyond, the one that was longest not refused is not

class Refusals {
 public:
  struct Report {
    Caller caller;
    std::string reason;       // the newest one's
    std::uint64_t count = 0;  // since the agent's start, or since the caller was forgotten
    std::uint64_t said_as = 0;  // event() of the report before, which this one replaces; 0: none
  };
  // Counts it. What is to be said now; nothing: it was said lately, and due() tells it later.
  std::optional<Report> refused(Instant now, const Caller& caller, const std::string& reason);
  // Of callers that went on after they were told of last, once their time is over.
  std::vector<Report> due(Instant now);
  // Under which number (LocalEvents) the newest report of that caller was told.
  void told(const Caller& caller, std::uint64_t event);
  Instant deadline() const;  // of due(); kNever: nothing is held back

 private:
  using Key = std::pair<std::string, std::uint32_t>;  // another host's number may be somebody else's
  struct State {
    Report newest;
    Instant quiet_until{};
    bool held_back = false;
  };
  static Key key_of(const Caller& caller) { return {caller.user, caller.uid}; }
  Report report(State& state, Instant now);

  std::map<Key, State> callers_;
};

}  // namespace dtrain::node
