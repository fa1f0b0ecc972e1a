// Which tasks of this host have a standby (docs/warm-standby.md): when one begins beside its task, when it is given up, and for how long it
// is kept. A pure state machine; agent/proc/standbys.h does what it says and reports what became of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/time.h"

namespace dtrain::task {

// From the start of an attempt to that of its standby: a script that fails at once needs none. The same after one has died.
inline constexpr Duration kStandbyAfter = 2s;
inline constexpr Duration kStandbyBound = 300s;            // from then on, until it is ready; it runs niced
inline constexpr Duration kStandbyStays = 15s;             // from the end of an assignment to the next of the same task
inline constexpr std::uint32_t kStandbyDeaths = 3;         // of those that waited beside one attempt: each is replaced, one more is not
inline constexpr std::size_t kStandbys = 64;               // of an agent
inline constexpr std::size_t kStandbysOfUser = 32;         // of these
inline constexpr Duration kMemoryPause = 2s;               // between two looks at the memory while there are standbys
inline constexpr std::uint64_t kLeastMemory = 1ull << 30;  // no standby waits, nor begins, where less than this is available

class StandbyPlan {
 public:
  using Key = std::pair<JobId, TaskId>;
  enum class Act : unsigned char { begin, give_up, forget };
  struct Step {
    Key key;
    Act act = Act::begin;
    std::string cause;  // of give_up, for people
  };

  // ---- of the tasks. `user`: who the standby runs as.
  void add(const Key& key, std::uint32_t user);
  void erase(const Key& key) { entries_.erase(key); }
  void attempt_started(const Key& key, Instant now);
  // True: its standby is of no use any more, and ends.
  bool attempt_ended(const Key& key, bool success);
  void assignment_over(const Key& key, Instant now);

  // ---- of their standbys
  bool waits(const Key& key) const;
  void not_now(const Key& key, Instant now);  // there is no room to begin it: later again
  void ready(const Key& key, Instant now);
  void used(const Key& key);
  void failed(const Key& key, Instant now);  // by itself: another may begin if it waited

  // What is to be done now. `memory`: what the host has available; nullopt: not known.
  std::vector<Step> steps(Instant now, std::optional<std::uint64_t> memory);
  Instant deadline() const;

 private:
  enum class State : unsigned char { none, prepares, waits };
  struct Entry {
    std::uint32_t user = 0;
    State state = State::none;
    bool runs = false;     // an attempt of the task
    Instant due = kNever;  // none: its begin; prepares: given up; waits: nobody comes any more
    std::uint32_t deaths = 0;
  };
  Entry* find(const Key& key);
  std::string why_none(const Entry& entry, bool short_of_memory) const;
  bool any() const;

  std::map<Key, Entry> entries_;
  Instant memory_at_ = kNever;
};

}  // namespace dtrain::task
