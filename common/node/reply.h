// Answers to clients, as effects.
#pragma once

#include "common/node/context.h"
#include "common/wire/control.h"

namespace dtrain::node {

template <class T>
void reply(Context& c, ConnectionId connection, std::uint64_t request, wire::MessageType type,
           const T& payload, bool last = true) {
  c.emit(Reply{connection, request, last, wire::encode(wire::make_message(type, request, payload, last))});
}

inline void reply_error(Context& c, ConnectionId connection, std::uint64_t request, const Error& error) {
  reply(c, connection, request, wire::MessageType::error, wire::error_reply(error));
}

}  // namespace dtrain::node
