// The bytes of relayed requests: two agents' RelayStreams, a client at the one, what serves it at the other, a link between them
// that loses what it is told to.
#include "agent/dtraind/relay_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "agent/proc/outlet.h"

namespace dtrain::daemon {
namespace {

using node::RelayEnded;
using wire::Message;
using wire::MessageType;

constexpr node::ConnectionId kClient = 5, kPart = 6, kServed = 7, kOwn = 8;

// A host: the client that is connected to it, and the rest of its agent.
struct World : RelayWorld {
  struct Client : Sink {
    explicit Client(World& world) : w(world) {}
    std::size_t room(node::ConnectionId) override { return w.room; }
    void send(node::ConnectionId client_, const Message& message) override {
      EXPECT_EQ(client_, kClient);
      w.client.push_back(message);
    }
    void hold(node::ConnectionId, bool hold) override { w.held = hold; }
    World& w;
  };
  struct Own : Sink {
    explicit Own(World& world) : w(world) {}
    std::size_t room(node::ConnectionId) override { return w.room; }
    void send(node::ConnectionId own_, const Message& message) override {
      EXPECT_EQ(own_, kOwn);
      w.own_answers.push_back(message);
    }
    World& w;
  };
  World() { sinks.add(kClient, clients); }

  Client clients{*this};
  Own own{*this};
  Sinks sinks;
  std::vector<Message> own_answers;
  std::deque<wire::RelayMessage> sent;
  std::vector<node::Event> told;
  std::vector<Message> client, relayed;
  std::vector<node::ConnectionId> closed;
  std::size_t room = 1 << 30, rooms = 0;
  bool held = false;

  void to_peer(const node::RelayPeer&, const wire::RelayMessage& message) override { sent.push_back(message); }
  void tell(node::Event event) override { told.push_back(std::move(event)); }
  void on_relayed(node::ConnectionId connection, Message message) override {
    EXPECT_EQ(connection, kServed);
    relayed.push_back(std::move(message));
  }
  void on_relayed_closed(node::ConnectionId connection) override { closed.push_back(connection); }
  void on_room(node::ConnectionId) override { ++rooms; }

  std::vector<RelayEnded> ended() const {
    std::vector<RelayEnded> found;
    for (const auto& event : told) found.push_back(std::get<RelayEnded>(event));
    return found;
  }
};

class RelaysTest : public ::testing::Test {
 protected:
  // Of connections that are over none is left.
  void TearDown() override {
    if (relays.size() + other.size() != 0) return;
    EXPECT_EQ(world.sinks.size(), 1u) << "the client's";
    EXPECT_EQ(other_world.sinks.size(), 1u);
  }
  const MemberId here{1, 1}, there{2, 2};
  World world, other_world;
  RelayStreams relays{world, world.sinks, world.own}, other{other_world, other_world.sinks, other_world.own};
  Instant now{1000s};
  bool cut = false;

  node::RelayPeer peer(const MemberId& id) {
    node::RelayPeer p;
    p.member = id;
    return p;
  }
  void open(bool whole = false) {
    node::OpenRelay effect;
    effect.part = kPart;
    effect.connection = kClient;
    effect.request = 9;
    effect.whole = whole;
    effect.peer = peer(there);
    effect.open.stream = 77;
    effect.query = wire::encode(wire::make_message(MessageType::logs, 1, wire::LogsRequest{}));
    relays.open(now, effect);
  }
  void carry(World& from, RelayStreams& to, const MemberId& sender) {
    for (const auto& message : std::exchange(from.sent, {})) {
      if (cut) continue;
      node::RelayReceived e;
      e.header.sender = sender;
      e.message = message;
      if (to.received(now, e)) continue;
      const auto* open = std::get_if<wire::RelayOpen>(&message);
      if (open != nullptr && &to == &other) other.accept(now, {kServed, peer(here), open->stream, open->allowed});
    }
  }
  void run_for(Duration time) {
    for (const Instant end = now + time; now <= end; now += 10ms) {
      relays.dispatch(now);
      other.dispatch(now);
      carry(world, other, here);
      carry(other_world, relays, there);
    }
  }
  Message chunk(std::size_t bytes, bool last = false) {
    wire::LogChunk c;
    c.bytes.assign(bytes, 'x');
    return wire::make_message(MessageType::log_chunk, 1, c, last);
  }
};

TEST_F(RelaysTest, AnswersReachTheClientUnderItsOwnNumberAndTheLastIsTold) {
  open();
  run_for(100ms);
  ASSERT_EQ(other_world.relayed.size(), 1u);
  EXPECT_EQ(other_world.relayed.front().type, MessageType::logs);
  for (int i = 0; i < 20; ++i) other.send(kServed, chunk(70'000));
  run_for(1s);
  ASSERT_EQ(world.client.size(), 20u);
  for (const Message& message : world.client) EXPECT_EQ((std::pair(message.request, message.last)), (std::pair(std::uint64_t{9}, false)));
  other.send(kServed, chunk(0, true));
  run_for(1s);
  EXPECT_EQ(world.client.size(), 20u);
  ASSERT_EQ(world.ended().size(), 1u);
  EXPECT_EQ(world.ended().front().how, RelayEnded::How::done);
  EXPECT_EQ(other_world.closed, std::vector{kServed});
  EXPECT_EQ(relays.size() + other.size(), 0u);
  EXPECT_EQ(relays.deadline(), kNever);
}

TEST_F(RelaysTest, AnswersToTheNodeItselfAreItsOwnWhileAStreamOfThemIsOpen) {
  for (const node::ConnectionId part : {kPart, kPart + 100}) {
    node::OpenRelay effect;
    effect.part = part;
    effect.connection = kOwn;
    effect.own = effect.whole = true;
    effect.request = 9;
    effect.peer = peer(there);
    effect.open.stream = part;
    effect.query = wire::encode(wire::make_message(MessageType::get_blob, 1, wire::Empty{}));
    relays.open(now, effect);
  }
  EXPECT_EQ(world.sinks.size(), 4u) << "the client, two parts, what they are for";
  relays.close(kPart + 100);
  EXPECT_EQ(world.sinks.size(), 3u);
  run_for(100ms);
  other_world.sinks.send(kServed, chunk(10));
  other_world.sinks.send(kServed, chunk(0, true));
  run_for(1s);
  EXPECT_EQ(world.own_answers.size(), 2u);
  EXPECT_TRUE(world.client.empty());
  ASSERT_EQ(world.ended().size(), 1u);
  EXPECT_EQ(world.sinks.room(kOwn), 0u);
  world.sinks.send(kOwn, chunk(10));
  world.sinks.send(kPart, chunk(10));
  other_world.sinks.send(kServed, chunk(10));
  run_for(1s);
  EXPECT_EQ(world.own_answers.size(), 2u);
  EXPECT_EQ(relays.size() + other.size(), 0u);
}

TEST_F(RelaysTest, ALinkThatWasCutLosesAndDoublesNothing) {
  open();
  run_for(100ms);
  for (int round = 0; round < 4; ++round) {
    cut = round % 2 == 0;
    for (int i = 0; i < 3; ++i) other.send(kServed, chunk(50'000 + static_cast<std::size_t>(round * 3 + i)));
    run_for(6s);
  }
  ASSERT_EQ(world.client.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(wire::decode<wire::LogChunk>(world.client[i].payload)->bytes.size(), 50'000 + i);
}

TEST_F(RelaysTest, AClientWithoutRoomStopsWhoSends) {
  open();
  run_for(100ms);
  world.room = 0;
  std::size_t written = 0;
  for (int i = 0; i < 1000; ++i) {
    for (; other.room(kServed) >= proc::kStreamMessageBytes; ++written) other.send(kServed, chunk(60'000));
    run_for(50ms);
  }
  EXPECT_LE(written * 60'000, kRelayOutputBytes + relay::kWindowBytes + 120'000);
  EXPECT_TRUE(world.client.empty());
  other_world.rooms = 0;
  world.room = 1 << 30;
  relays.wake(kClient);
  run_for(1s);
  EXPECT_EQ(world.client.size(), written);
  EXPECT_GE(other_world.rooms, 1u);
}

TEST_F(RelaysTest, InputGoesToItsExecAndIsNotReadFasterThanItGoes) {
  open(true);
  run_for(100ms);
  wire::ExecInput input;
  input.exec = 8;
  EXPECT_FALSE(relays.input(kClient, input));  // another request of that client
  EXPECT_FALSE(relays.input(kClient + 1, input));
  input.exec = 9;
  input.bytes.assign(16 << 10, 'i');
  cut = true;
  int inputs = 0;
  for (; !world.held; ++inputs) ASSERT_TRUE(relays.input(kClient, input));
  EXPECT_GT(inputs * input.bytes.size(), kRelayInputBytes - (32 << 10));
  cut = false;
  run_for(10s);
  EXPECT_FALSE(world.held);
  ASSERT_EQ(other_world.relayed.size(), 1u + static_cast<std::size_t>(inputs));
  EXPECT_EQ(wire::decode<wire::ExecInput>(other_world.relayed.back().payload)->exec, 1u);
  // The last answer of a whole request is the client's.
  other.send(kServed, wire::make_message(MessageType::exec_output, 1, wire::ExecOutput{}));
  run_for(1s);
  ASSERT_EQ(world.client.size(), 1u);
  EXPECT_TRUE(world.client.front().last);
  EXPECT_EQ(relays.size() + other.size(), 0u);
}

TEST_F(RelaysTest, WhoTakesNothingIsClosedAtTheLimit) {
  open(true);
  run_for(100ms);
  cut = true;
  wire::ExecInput input;
  input.exec = 9;
  input.bytes.assign(1 << 20, 'i');
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(relays.input(kClient, input));
  EXPECT_EQ(relays.size(), 1u);  // not in the middle of it
  run_for(10ms);
  EXPECT_EQ(relays.size(), 0u);
  ASSERT_EQ(world.ended().size(), 1u);
  EXPECT_EQ(world.ended().front().how, RelayEnded::How::lost);
  EXPECT_FALSE(world.held);
}

TEST_F(RelaysTest, ErrorsAndSilenceAreTold) {
  open();
  run_for(100ms);
  other.send(kServed, wire::make_message(MessageType::error, 1, wire::error_reply({ErrorCode::not_found, "could not x: y", "z"})));
  run_for(1s);
  ASSERT_EQ(world.ended().size(), 1u);
  EXPECT_EQ(world.ended().front().how, RelayEnded::How::refused);
  EXPECT_EQ(world.ended().front().error.text(), "could not x: y; z");
  EXPECT_TRUE(world.client.empty());
  world.told.clear();
  open();
  run_for(100ms);
  cut = true;
  run_for(relay::kSilence + 1s);
  ASSERT_EQ(world.ended().size(), 1u);
  EXPECT_EQ(world.ended().front().how, RelayEnded::How::lost);
  EXPECT_THAT(world.ended().front().error.message, ::testing::HasSubstr("silent for 30 s"));
  EXPECT_EQ(relays.size() + other.size(), 0u);
}

TEST_F(RelaysTest, WhatIsNoAnswerEndsTheStream) {
  open();
  run_for(100ms);
  node::RelayReceived e;
  e.header.sender = there;
  e.message = wire::RelayData{77, false, 0, std::string(8, '\xff'), 0, 0, false};
  ASSERT_TRUE(relays.received(now, e));
  run_for(50ms);
  ASSERT_EQ(world.ended().size(), 1u);
  EXPECT_THAT(world.ended().front().error.message, ::testing::HasSubstr("what is no answer"));
  EXPECT_EQ(other_world.closed, std::vector{kServed});
  EXPECT_FALSE(relays.received(now, e)) << "it is Node's to answer";
}

TEST_F(RelaysTest, APartAtThisHostNeedsNobodyElse) {
  node::OpenRelay effect;
  effect.part = kPart;
  effect.connection = kClient;
  effect.request = 9;
  relays.open(now, effect);
  world.room = 100;
  EXPECT_EQ(relays.room(kPart), 100u);
  run_for(20ms);
  EXPECT_EQ(world.rooms, 0u);
  world.room = 1 << 20;
  relays.wake(kClient);
  run_for(20ms);
  EXPECT_EQ(world.rooms, 1u);
  relays.send(kPart, chunk(10));
  relays.send(kPart, chunk(0, true));
  ASSERT_EQ(world.client.size(), 1u);
  EXPECT_EQ(world.client.front().request, 9u);
  ASSERT_EQ(world.ended().size(), 1u);
  EXPECT_EQ(relays.size(), 0u);
  EXPECT_EQ(relays.room(kPart), 0u);
}

}  // namespace
}  // namespace dtrain::daemon
