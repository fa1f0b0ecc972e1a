// All that Membership waits for, in one ordered set, by time. O(log waiting) for each call.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/base/member_id.h"
#include "common/base/time.h"

namespace dtrain::gossip {

enum class Wait : std::uint8_t {
  probe,         // begin the next probe
  expect,        // by member: a neighbour's ping is overdue
  probe_direct,  // by sequence: no answer yet, ask helpers
  probe_total,   // by sequence: no answer at all, the probe failed
  relay_nack,    // by sequence: a helper reports that it has no answer
  relay_end,     // by sequence: a helper forgets the request
  suspicion,     // by member: the suspicion ends unrefuted
  freeze,        // look whether quorum is still lacking
  batch,         // send rumours
  links,         // make the list of links to keep anew
  sync,          // periodic state sync
  sync_soon,     // state sync with one member that came back
  retry,         // try one address that does not answer
  join,          // ask for admission again
  reap,          // by member: forget its row
  save,          // save the record
};

class Timers {
 public:
  struct Key {
    Wait wait{};
    MemberId id;  // of a member; of a sequence: {0, sequence}; none: there is only one
    auto operator<=>(const Key&) const = default;
  };
  static Key of(Wait wait) { return {wait, {}}; }
  static Key of(Wait wait, const MemberId& id) { return {wait, id}; }
  static Key of(Wait wait, std::uint64_t sequence) { return {wait, {0, sequence}}; }

  void set(const Key& key, Instant at) {  // a second call moves it
    cancel(key);
    if (at == kNever) return;
    at_.emplace(key, at);
    order_.emplace(at, key);
  }
  void cancel(const Key& key) {
    const auto found = at_.find(key);
    if (found == at_.end()) return;
    order_.erase({found->second, key});
    at_.erase(found);
  }
  bool waits(const Key& key) const { return at_.count(key) != 0; }
  Instant next() const { return order_.empty() ? kNever : order_.begin()->first; }
  // Removes and returns the first key that is due.
  std::optional<Key> pop(Instant now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    const Key key = order_.begin()->second;
    order_.erase(order_.begin());
    at_.erase(key);
    return key;
  }
  std::size_t size() const { return at_.size(); }
  void clear() { at_.clear(), order_.clear(); }
  std::size_t memory_bytes() const { return at_.size() * 2 * (sizeof(Key) + sizeof(Instant) + 40); }

 private:
  std::map<Key, Instant> at_;
  std::set<std::pair<Instant, Key>> order_;
};

}  // namespace dtrain::gossip
