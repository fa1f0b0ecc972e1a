// Answers to clients, as effects.
#pragma once

#include "common/node/context.h"
#include "common/wire/control.h"

namespace dtrain::node {

template <class T>
void reply(Context& c, ConnectionId connection, std::uint64_t request, wire::MessageType type, const T& payload, bool last = true) {
  c.emit(Reply{connection, request, last, wire::encode(wire::make_message(type, request, payload, last))});
}

template <class T>
void reply(Context& c, const Request& e, wire::MessageType type, const T& payload) {
  reply(c, e.connection, e.request, type, payload);
}

inline void reply_error(Context& c, ConnectionId connection, std::uint64_t request, const Error& error) {
  reply(c, connection, request, wire::MessageType::error, wire::error_reply(error));
}
inline void reply_error(Context& c, const Request& e, const Error& error) { reply_error(c, e.connection, e.request, error); }

}  // namespace dtrain::node
