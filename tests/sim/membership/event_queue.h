// The kinds of events of world membership.
#pragma once

#include <cstdint>

#include "tests/sim/event_queue.h"

namespace dtrain::sim::membership {

enum class What : std::uint8_t {
  tick,        // slot
  message,     // slot receives message a
  input,       // slot receives input a
  connect,     // slot's link a, attempt b: the first packet arrives
  handshake,   // the same: the handshake is over
  retransmit,  // slot's link a, connection b: a packet that got no answer is sent again
  unanswered,  // the same: was anything heard of what was sent?
  reset,       // the same: the other end says that it knows no such connection
  resume,      // slot, pause a
  saved,       // slot, process a: what it saved is on the disk
  action,      // a of the world
  processor,   // what waited longest for a processor has its turn
};

using Event = EventOf<What>;
using EventQueue = EventQueueOf<What>;

}  // namespace dtrain::sim::membership
