// Where streams (logs, exec) put their messages: the output queues of the clients' connections. The daemon
// implements it over its control server.
#pragma once

#include <cstddef>

#include "common/node/event.h"
#include "common/wire/control.h"

namespace dtrain::proc {

inline constexpr std::size_t kStreamChunkBytes = 64 << 10;     // payload bytes of one LogChunk or ExecOutput
inline constexpr std::size_t kPartialBytesOfStream = 1 << 20;  // of all unfinished lines of one reader; beyond, the next is split
inline constexpr std::size_t kPartialLineBytes = 16 << 10;     // a longer line is split there where lines are kept together
// Room that a connection must have before a stream sends it one more message: chunk, partial line and
// framing.
inline constexpr std::size_t kStreamMessageBytes = kStreamChunkBytes + kPartialLineBytes + (4 << 10);

class Outlet {
 public:
  virtual ~Outlet() = default;
  // Bytes that the connection's output queue takes at the moment; 0 for a connection that is gone. When it
  // has grown again, the daemon calls wake() of the streams.
  virtual std::size_t room(node::ConnectionId connection) = 0;
  virtual void send(node::ConnectionId connection, const wire::Message& message) = 0;
};

}  // namespace dtrain::proc
