// The door for clients of other machines: who comes in and as whom, what of theirs is held, and when they are gone.
#include "agent/net/client_door.h"

#include "tests/unit/net/door_world.h"
#include "tests/unit/net/strangers.h"

namespace dtrain::net::testing {
namespace {

using wire::BridgeWord;
using ClientDoorTest = DoorWorld;

TEST_F(ClientDoorTest, ServesAKeyAsItsUser) {
  Visitor& anne = guest(anne_);
  EXPECT_EQ(sink_.open.begin()->second.user, "anne");
  EXPECT_EQ(sink_.open.begin()->second.uid, kAnne);
  anne.say(BridgeWord::data, request(7));
  ASSERT_TRUE(until([&] { return sink_.messages.size() == 1; }));
  EXPECT_EQ(sink_.messages[0].second.request, 7u);
  server_->send(opened(), wire::make_message(wire::MessageType::ok, 7, wire::Empty{}));
  ASSERT_TRUE(until([&] { return anne.messages().size() == 1; }));
  EXPECT_EQ(anne.messages()[0].request, 7u);
  guest(bob_);
  EXPECT_EQ(sink_.open.rbegin()->second.uid, kBob);
  EXPECT_EQ(door_->visits(), 2u);
}

// ZeroMQ lets a client choose the name of its connection. Of one that broke the door hears only when it speaks to it.
TEST_F(ClientDoorTest, NobodySpeaksForAnotherUnderTheNameOfItsConnection) {
  const std::string name("\0same", 5);
  Visitor& anne = visitor(anne_, name);
  anne.hello();
  ASSERT_TRUE(until([&] { return anne.has(BridgeWord::hello) && !sink_.open.empty(); }));
  anne.leave();
  // ZeroMQ turns the name away as long as it has not noticed that.
  const auto noticed = [&] { return log_.have("net.dropped reason=not-the-key-holder"); };
  for (int tries = 0; tries < 50 && !noticed() && door_->visits() == 1; ++tries) {
    visitor(bob_, name).say(BridgeWord::data, request(7));
    (void)until(noticed, 100ms);
  }
  EXPECT_TRUE(noticed());
  EXPECT_EQ(door_->visits(), 0u);
  EXPECT_TRUE(sink_.messages.empty()) << "nothing that Bob says is Anne's";
}

TEST_F(ClientDoorTest, EndsWithEitherSide) {
  Visitor& first = guest(anne_);
  server_->send(opened(), wire::make_message(wire::MessageType::ok, 1, wire::Empty{}));
  server_->close(opened());
  ASSERT_TRUE(until([&] { return first.has(BridgeWord::end); }));
  EXPECT_EQ(first.messages().size(), 1u) << "what was sent before arrives before";
  Visitor& second = guest(anne_);
  second.say(BridgeWord::data, request(2));
  second.say(BridgeWord::end);
  ASSERT_TRUE(until([&] { return sink_.closed.size() == 2; }));
  EXPECT_EQ(sink_.messages.size(), 1u) << "what was said before is heard before";
  EXPECT_EQ(door_->visits(), 0u);
}

TEST_F(ClientDoorTest, UnknownKeyIsToldSo) {
  const auto opened_link = link(keys_of(stranger_));
  ASSERT_FALSE(opened_link);
  EXPECT_EQ(opened_link.error().code, ErrorCode::refused);
  EXPECT_NE(opened_link.error().text().find("could not reach agent " + at_.text() + ": it does not know your key"), std::string::npos)
      << opened_link.error().text();
  EXPECT_NE(opened_link.error().next.find(wire::key_text(stranger_.public_key) + ": "), std::string::npos);
  EXPECT_TRUE(log_.have("net.refused reason=unknown-client-key", wire::key_text(stranger_.public_key)));
  EXPECT_EQ(door_->refused(), 1u);
  EXPECT_TRUE(sink_.open.empty());
}

TEST_F(ClientDoorTest, WithoutTheDoorsKeyNobodyIsHeard) {
  const auto wrong = link({anne_, {make_pair().public_key}});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::unavailable);
  EXPECT_NE(wrong.error().message.find("serves with no key of your key file"), std::string::npos) << wrong.error().message;
  EXPECT_TRUE(until([&] { return log_.have("net.refused reason=handshake"); }));
  // Not even the cluster's own pair opens it: the door has one of its own.
  EXPECT_FALSE(link({anne_, {cluster_.pairs[0].public_key}}));
  const auto second = link({anne_, {make_pair().public_key, door_key(cluster_.pairs[0]).public_key}});
  EXPECT_TRUE(second) << second.error().text();
}

TEST_F(ClientDoorTest, PlainAndJunkAreRefusedAndDelayNobody) {
  std::vector<RawConnection> flood;
  for (int i = 0; i < 150; ++i) {
    flood.emplace_back(at_, i % 3 == 0 ? greeting("NULL") : i % 3 == 1 ? greeting("CURVE") : std::string(300, 'x'));
  }
  const auto speak = [&] {
    for (RawConnection& each : flood) each.speak();
    return true;
  };
  ASSERT_TRUE(until(speak));
  Visitor& anne = guest(anne_);
  anne.say(BridgeWord::data, request(1));
  ASSERT_TRUE(until([&] { return speak() && sink_.messages.size() == 1; }));
  ASSERT_TRUE(until([&] { return std::ranges::all_of(flood, [](const RawConnection& each) { return each.closed(); }); }))
      << "also who says nothing is cut off, by the limit on handshakes";
  EXPECT_EQ(sink_.open.size(), 1u);
}

TEST_F(ClientDoorTest, RevokedKeyIsCutOffAtOnce) {
  Visitor& anne = guest(anne_);
  Visitor& bob = guest(bob_);
  door_->allow({{bob_.public_key, "bob"}});
  EXPECT_EQ(door_->visits(), 1u) << "before anything else is done";
  ASSERT_TRUE(until([&] { return anne.has(BridgeWord::end) && sink_.closed.size() == 1; }));
  // Its TCP connection may still be there, and opens nothing.
  anne.data.clear();
  anne.hello();
  ASSERT_TRUE(until([&] { return anne.refusal().has_value(); }));
  EXPECT_EQ(anne.refusal()->code, ErrorCode::refused);
  bob.say(BridgeWord::data, request(1));
  ASSERT_TRUE(until([&] { return sink_.messages.size() == 1; }));
  EXPECT_FALSE(link(keys_of(anne_)));
  EXPECT_EQ(sink_.open.size(), 1u);
}

TEST_F(ClientDoorTest, KeyOfAnotherUserNowIsCutOff) {
  guest(anne_);
  door_->allow({{anne_.public_key, "bob"}});
  EXPECT_EQ(door_->visits(), 0u);
  guest(anne_);
  EXPECT_EQ(sink_.open.rbegin()->second.user, "bob");
  uids_.erase("bob");  // the account is gone
  door_->allow({{anne_.public_key, "bob"}});
  EXPECT_EQ(door_->visits(), 0u);
}

TEST_F(ClientDoorTest, RefusalOfTheHostIsAnError) {
  uids_.erase("anne");
  Visitor& anne = visitor(anne_);
  anne.hello();
  ASSERT_TRUE(until([&] { return anne.refusal() && anne.has(BridgeWord::end); }));
  EXPECT_EQ(anne.refusal()->message, "could not serve anne");
  EXPECT_EQ(anne.refusal()->code, ErrorCode::refused);
  EXPECT_TRUE(sink_.open.empty());
}

TEST_F(ClientDoorTest, ManyOfOneKeyLeaveRoomForOthers) {
  for (std::size_t i = 0; i < kVisitsPerKey; ++i) visitor(anne_).hello();
  ASSERT_TRUE(until([&] { return sink_.open.size() == kVisitsPerKey; }));
  Visitor& further = visitor(anne_);
  further.hello();
  ASSERT_TRUE(until([&] { return further.refusal().has_value(); }));
  EXPECT_EQ(further.refusal()->code, ErrorCode::limit);
  guest(bob_);
  EXPECT_EQ(door_->visits(), kVisitsPerKey + 1);
}

TEST_F(ClientDoorTest, OfASlowReaderNoMoreIsTakenThanTheWindow) {
  Visitor& anne = guest(anne_);
  const std::string large(200 << 10, 'y');
  const auto message = wire::make_message(wire::MessageType::log_chunk, 1, wire::JobName{large});
  for (int i = 0; i < 10; ++i) server_->send(opened(), message);  // 2 MB
  ASSERT_TRUE(until([&] {
    anne.listen();
    return anne.data.size() == relay::kBridgeWindowBytes;
  }));
  EXPECT_FALSE(until([&] { return anne.listen(), anne.data.size() > relay::kBridgeWindowBytes; }, 100ms)) << "nothing was allowed";
  EXPECT_FALSE(server_->flushed()) << "the rest waits where its limit is";
  std::size_t allowed = 0;
  ASSERT_TRUE(until([&] {
    anne.listen();
    if (anne.data.size() > allowed) {
      anne.say(BridgeWord::allow, "", static_cast<std::uint32_t>(anne.data.size() - allowed));
      allowed = anne.data.size();
    }
    return anne.messages().size() == 10;
  }));
  EXPECT_TRUE(server_->flushed());
}

TEST_F(ClientDoorTest, WhoAllowsMoreThanWasSentIsTurnedOut) {
  Visitor& anne = guest(anne_);
  server_->send(opened(), wire::make_message(wire::MessageType::ok, 1, wire::Empty{}));
  ASSERT_TRUE(until([&] { return anne.messages().size() == 1; }));
  const auto sent = static_cast<std::uint32_t>(anne.data.size());
  anne.say(BridgeWord::allow, "", sent);
  anne.say(BridgeWord::data, request(1));
  ASSERT_TRUE(until([&] { return sink_.messages.size() == 1; })) << "so much it may";
  anne.say(BridgeWord::allow, "", 1);
  EXPECT_TRUE(until([&] { return door_->visits() == 0 && sink_.closed.size() == 1; }));
}

TEST_F(ClientDoorTest, WhoSendsMoreThanWasAllowedIsTurnedOut) {
  Visitor& anne = guest(anne_);
  server_->pause(opened());
  // The window, and what the kernel holds of it between the door and the server: allowed again as it is handed on.
  const std::string chunk(wire::kBridgeChunkBytes, 'z');
  for (std::size_t sent = 0; sent < 4 * relay::kBridgeWindowBytes; sent += chunk.size()) {
    anne.say(BridgeWord::data, chunk);
    ASSERT_TRUE(until([] { return true; }));
  }
  ASSERT_TRUE(until([&] { return door_->visits() == 0 && anne.has(BridgeWord::end); }));
  EXPECT_TRUE(log_.have("net.dropped reason=malformed"));
}

TEST_F(ClientDoorTest, HalfAFrameIsNoRequest) {
  Visitor& anne = guest(anne_);
  const std::string whole = request(1);
  anne.say(BridgeWord::data, whole.substr(0, whole.size() / 2));
  anne.say(BridgeWord::end);
  ASSERT_TRUE(until([&] { return sink_.closed.size() == 1; }));
  EXPECT_TRUE(sink_.messages.empty());
  Visitor& patient = guest(anne_);
  patient.say(BridgeWord::data, whole.substr(0, 3));
  ASSERT_TRUE(until([] { return true; }));
  patient.say(BridgeWord::data, whole.substr(3));
  EXPECT_TRUE(until([&] { return sink_.messages.size() == 1; }));
}

TEST_F(ClientDoorTest, WhatNobodyUnderstandsEndsTheVisit) {
  for (const std::string_view junk :
       {std::string_view("\x09junk"), std::string_view(""), std::string_view("\x03\0\0\0\0", 5), std::string_view("\x01\x01")}) {
    Visitor& anne = guest(anne_);
    anne.say_raw(junk);
    ASSERT_TRUE(until([&] { return anne.has(BridgeWord::end) && door_->visits() == 0; }));
  }
  Visitor& anne = guest(anne_);
  anne.say_raw(wire::encode_bridge({BridgeWord::ping, "", 0}), true);
  anne.say_raw("a second frame");
  ASSERT_TRUE(until([&] { return door_->visits() == 0; }));
  // Without a hello nothing else is heard.
  Visitor& early = visitor(anne_);
  early.say(BridgeWord::data, request(1));
  ASSERT_TRUE(until([&] { return early.has(BridgeWord::end); }));
  EXPECT_TRUE(sink_.messages.empty());
}

TEST_F(ClientDoorTest, AnotherVersionLearnsOurs) {
  Visitor& anne = visitor(anne_);
  anne.hello(wire::kBridgeVersion + 1);
  ASSERT_TRUE(until([&] { return anne.has(BridgeWord::end); }));
  EXPECT_TRUE(anne.has(BridgeWord::hello));
  EXPECT_EQ(door_->visits(), 0u);
}

TEST_F(ClientDoorTest, WhoseConnectionIsGoneIsMissedAtTheNextPing) {
  Visitor& anne = guest(anne_);
  anne.leave();
  EXPECT_FALSE(until([&] { return !sink_.closed.empty(); }, 50ms)) << "ZeroMQ does not tell";
  now_ += relay::kBridgePing;
  EXPECT_TRUE(until([&] { return sink_.closed.size() == 1; }));
}

TEST_F(ClientDoorTest, WhoFallsSilentIsGivenUp) {
  Visitor& silent = guest(anne_);
  Visitor& lively = guest(bob_);
  for (Duration passed{}; passed < relay::kBridgeSilence; passed += relay::kBridgePing) {
    EXPECT_EQ(door_->visits(), 2u);
    now_ += relay::kBridgePing;
    const int pings = lively.heard[BridgeWord::ping];
    ASSERT_TRUE(until([&] { return lively.listen(), lively.heard[BridgeWord::ping] > pings; }));
    lively.say(BridgeWord::pong);
    lively.say(BridgeWord::ping);  // once: all that it said is heard when this is answered, before the time goes on
    ASSERT_TRUE(until([&] { return lively.has(BridgeWord::pong); }));
    lively.heard[BridgeWord::pong] = 0;
  }
  ASSERT_TRUE(until([&] { return sink_.closed.size() == 1; }));
  EXPECT_TRUE(silent.has(BridgeWord::ping));
  EXPECT_EQ(door_->visits(), 1u);
  EXPECT_EQ(sink_.open.begin()->second.user, "bob");
}

TEST_F(ClientDoorTest, NewKeyOfTheClusterEndsVisits) {
  Visitor& anne = guest(anne_);
  const ClientKeys before = keys_of(anne_);
  ClusterKeys both{{cluster_.pairs[0], make_pair()}};
  ASSERT_TRUE(door_->rekey(both));
  EXPECT_EQ(door_->visits(), 1u) << "it serves as before";
  std::swap(both.pairs[0], both.pairs[1]);
  ASSERT_TRUE(door_->rekey(both));
  EXPECT_EQ(door_->visits(), 0u);
  ASSERT_TRUE(until([&] { return sink_.closed.size() == 1; }));
  cluster_ = both;
  EXPECT_FALSE(link(before));
  EXPECT_TRUE(link(keys_of(anne_)));
  anne.leave();
}

TEST_F(ClientDoorTest, TakenPortIsSaid) {
  const auto second = ClientDoor::open(at_, cluster_, {}, log_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace dtrain::net::testing
