// What delivers the answers of each open connection: one entry from the connection's beginning to its end. What is sent to a connection
// without an entry is dropped, because it is gone.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "agent/proc/outlet.h"
#include "common/node/event.h"
#include "common/wire/control.h"

namespace dtrain::daemon {

// One kind of connection: of clients, of other agents, of this node itself.
class Sink : public proc::Outlet {
 public:
  // As send(), of an encoded wire::Message.
  virtual void send_encoded(node::ConnectionId connection, const std::string& body) {
    if (const auto message = wire::decode<wire::Message>(body)) send(connection, *message);
  }
  virtual void close(node::ConnectionId) {}
  virtual void hold(node::ConnectionId, bool /*hold*/) {}  // true: what comes on the connection is not read for now
};

class Sinks final : public proc::Outlet {
 public:
  void add(node::ConnectionId connection, Sink& sink) { sinks_[connection] = &sink; }
  void remove(node::ConnectionId connection) { sinks_.erase(connection); }
  std::size_t size() const { return sinks_.size(); }

  std::size_t room(node::ConnectionId connection) override {
    Sink* sink = find(connection);
    return sink == nullptr ? 0 : sink->room(connection);
  }
  void send(node::ConnectionId connection, const wire::Message& message) override {
    if (Sink* sink = find(connection)) sink->send(connection, message);
  }
  void send_encoded(node::ConnectionId connection, const std::string& body) {
    if (Sink* sink = find(connection)) sink->send_encoded(connection, body);
  }
  void close(node::ConnectionId connection) {
    if (Sink* sink = find(connection)) sink->close(connection);
  }
  void hold(node::ConnectionId connection, bool hold) {
    if (Sink* sink = find(connection)) sink->hold(connection, hold);
  }

 private:
  Sink* find(node::ConnectionId connection) const {
    const auto found = sinks_.find(connection);
    return found == sinks_.end() ? nullptr : found->second;
  }

  std::map<node::ConnectionId, Sink*> sinks_;
};

}  // namespace dtrain::daemon
