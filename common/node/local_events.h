// Events of this node alone, which only its own agent shows (`dtrainctl events`): what the node saw of the others, and what
// it did or refused outside the ledger. Kept in memory; the agent's log has all of them.
//
// Bounds: kLocalEvents in all, and kLocalOfType of each type of event that somebody can bring about again and again
// (refusals, exec, a health check that comes and goes), so that such events push nothing else out. The oldest are dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "common/wire/control.h"

namespace dtrain::node {

inline constexpr std::size_t kLocalEvents = 2000;
inline constexpr std::size_t kLocalOfType = 100;

class LocalEvents {
 public:
  // Numbers continue above this one.
  void begin_above(std::uint64_t number) { local_ = number; }
  // Sets the event's `local` number, which only grows, and returns it.
  std::uint64_t add(wire::EventView event);
  // The same for an event of a bounded type: if there are kLocalOfType of the type, the oldest of them is dropped.
  std::uint64_t add_bounded(wire::EventView event);
  // Removes an event that a newer one supersedes, if it is still there.
  void replace(std::uint64_t local);
  // Ascending by `local`.
  const std::deque<wire::EventView>& all() const { return events_; }

 private:
  std::deque<wire::EventView> events_;
  std::uint64_t local_ = 0;  // of the newest
};

}  // namespace dtrain::node
