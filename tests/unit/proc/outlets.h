// Test helper: an Outlet that keeps the messages, with room as the test says.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "agent/proc/outlet.h"

namespace dtrain::proc::testing {

class KeepingOutlet : public Outlet {
 public:
  std::size_t room(node::ConnectionId) override { return room_; }
  void send(node::ConnectionId connection, const wire::Message& message) override {
    messages.emplace_back(connection, message);
    if (takes_one_at_a_time) room_ = 0;
  }
  void set_room(std::size_t room) { room_ = room; }

  bool takes_one_at_a_time = false;
  std::vector<std::pair<node::ConnectionId, wire::Message>> messages;

 private:
  std::size_t room_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace dtrain::proc::testing
