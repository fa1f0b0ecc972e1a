// The events of one node alone, which only its own agent tells (`dtrainctl events`): what it saw of the others, and what it did or
// refused to do beside the ledger. In memory; its log has them all.
//
// Bounds: kLocalEvents in all, and kLocalOfType of one type of what this node says of itself, so that what somebody can bring about
// again and again (refusals, exec, a health check that comes and goes) pushes nothing else out. The oldest go.
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
  // Numbers go on above this one.
  void begin_above(std::uint64_t number) { local_ = number; }
  // Numbers it: `local` is its number, which only grows. Answers that.
  std::uint64_t add(wire::EventView event);
  // The same of an event that one of its type may push out, and only such a one while there are kLocalOfType of them.
  std::uint64_t add_bounded(wire::EventView event);
  // A newer one says all that this one said. Nothing where it is gone already.
  void replace(std::uint64_t local);
  // Ascending by `local`.
  const std::deque<wire::EventView>& all() const { return events_; }

 private:
  std::deque<wire::EventView> events_;
  std::uint64_t local_ = 0;  // of the newest
};

}  // namespace dtrain::node
