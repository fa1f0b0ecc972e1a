// Where answers go: to what the connection was opened with, and nowhere once it is closed.
#include "agent/dtraind/sinks.h"

#include <gtest/gtest.h>

#include <vector>

namespace dtrain::daemon {
namespace {

struct Recorder : Sink {
  std::vector<node::ConnectionId> sent, closed, held;
  std::size_t room(node::ConnectionId) override { return 100; }
  void send(node::ConnectionId connection, const wire::Message&) override { sent.push_back(connection); }
  void close(node::ConnectionId connection) override { closed.push_back(connection); }
  void hold(node::ConnectionId connection, bool) override { held.push_back(connection); }
};

TEST(Sinks, AnswersGoToTheKindOfTheirConnection) {
  Sinks sinks;
  Recorder clients, relays;
  sinks.add(1, clients);
  sinks.add(2, relays);
  const auto message = wire::make_message(wire::MessageType::ok, 1, wire::Empty{});
  sinks.send(1, message);
  sinks.send_encoded(2, wire::encode(message));
  sinks.send_encoded(2, "no message");
  sinks.hold(1, true);
  sinks.close(2);
  EXPECT_EQ(sinks.room(2), 100u);
  EXPECT_EQ(clients.sent, std::vector<node::ConnectionId>{1});
  EXPECT_EQ(clients.held, std::vector<node::ConnectionId>{1});
  EXPECT_EQ(relays.sent, std::vector<node::ConnectionId>{2});
  EXPECT_EQ(relays.closed, std::vector<node::ConnectionId>{2});
}

TEST(Sinks, WhatIsForAConnectionThatIsGoneIsDropped) {
  Sinks sinks;
  Recorder clients;
  for (node::ConnectionId connection = 1; connection <= 1000; ++connection) {
    sinks.add(connection, clients);
    sinks.remove(connection);
    sinks.remove(connection);  // told twice: of a stream, by itself and by its end
    const auto message = wire::make_message(wire::MessageType::ok, 1, wire::Empty{});
    sinks.send(connection, message);
    sinks.send_encoded(connection, wire::encode(message));
    sinks.close(connection);
    sinks.hold(connection, true);
    EXPECT_EQ(sinks.room(connection), 0u);
  }
  EXPECT_EQ(sinks.size(), 0u);
  EXPECT_TRUE(clients.sent.empty() && clients.closed.empty() && clients.held.empty());
}

}  // namespace
}  // namespace dtrain::daemon
