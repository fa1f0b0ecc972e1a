// The kinds of events of world council.
#pragma once

#include <cstdint>

#include "tests/sim/event_queue.h"

namespace dtrain::sim::council {

enum class What : std::uint8_t {
  tick,       // slot, process a
  message,    // slot receives flight a
  persisted,  // slot, process a: what was under way is on the disk, or has failed
  snapshot,   // slot, process a: the state is written down
  resume,     // slot, pause a
  ask,        // attempt a reaches slot
  told,       // attempt a: its answer reaches the client
  client,     // client a, wake-up b
  action,     // a of the world
};

using Event = EventOf<What>;
using EventQueue = EventQueueOf<What>;

}  // namespace dtrain::sim::council
