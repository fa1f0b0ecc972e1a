// A door, the control server that it hands its connections to, and visitors that say what they like.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/net/client_door.h"
#include "agent/net/client_link.h"
#include "common/wire/bridge.h"
#include "common/wire/key_file.h"
#include "tests/unit/net/control_world.h"
#include "tests/unit/net/links_world.h"

namespace dtrain::net::testing {

// A client below all checks of ClientLink.
class Visitor {
 public:
  // `name`: by which it wants the door's ROUTER to know its connection; "": whatever that likes.
  Visitor(const ZmqContext& context, const wire::Endpoint& to, const KeyPair& own, const CurveKey& door, std::string_view name) {
    auto socket = ZmqSocket::open(context, ZMQ_DEALER);
    EXPECT_TRUE(socket);
    socket_ = std::move(*socket);
    const auto view = [](const CurveKey& key) { return std::string_view(reinterpret_cast<const char*>(key.data()), key.size()); };
    EXPECT_TRUE(socket_.set(ZMQ_LINGER, 0) && socket_.set(ZMQ_RECONNECT_IVL, -1) && socket_.set(ZMQ_CURVE_SERVERKEY, view(door)) &&
                socket_.set(ZMQ_CURVE_PUBLICKEY, view(own.public_key)) && socket_.set(ZMQ_CURVE_SECRETKEY, view(own.secret_key)));
    EXPECT_TRUE(name.empty() || socket_.set(ZMQ_ROUTING_ID, name));
    EXPECT_TRUE(socket_.connect("tcp://" + to.text()));
  }
  void say(wire::BridgeWord word, std::string bytes = "", std::uint32_t count = 0) {
    say_raw(wire::encode_bridge({word, std::move(bytes), count}));
  }
  void say_raw(std::string_view bytes, bool more = false) { EXPECT_EQ(socket_.send(bytes, more), ZmqSocket::Sent::done); }
  void hello(std::uint32_t version = wire::kBridgeVersion) { say(wire::BridgeWord::hello, "", version); }
  // What has arrived so far: data joined, the other words counted.
  void listen() {
    Frame frame;
    while (socket_.receive(frame)) {
      const auto message = wire::decode_bridge(frame.bytes());
      ASSERT_TRUE(message);
      ++heard[message->word];
      data += message->bytes;
    }
  }
  bool has(wire::BridgeWord word) {
    listen();
    return heard[word] > 0;
  }
  // Control messages among the data.
  std::vector<wire::Message> messages() {
    listen();
    wire::Deframer deframer;
    deframer.feed(data);
    std::vector<wire::Message> out;
    for (auto m = deframer.next(); m && *m; m = deframer.next()) out.push_back(std::move(**m));
    return out;
  }
  std::optional<Error> refusal() {
    for (const wire::Message& message : messages())
      if (message.type == wire::MessageType::error)
        if (const auto reply = wire::decode<wire::ErrorReply>(message.payload))
          return Error{reply->errors[0].code, reply->errors[0].message, reply->errors[0].next};
    return std::nullopt;
  }
  void leave() { socket_.close(); }

  std::map<wire::BridgeWord, int> heard;
  std::string data;

 private:
  ZmqSocket socket_;
};

class DoorWorld : public ControlWorld {
 protected:
  static constexpr std::uint32_t kAnne = 1001, kBob = 1002;

  void SetUp() override {
    ControlWorld::SetUp();
    auto context = ZmqContext::open(1, 256);
    ASSERT_TRUE(context);
    context_.emplace(std::move(*context));
    open_door();
    door_->allow({{anne_.public_key, "anne"}, {bob_.public_key, "bob"}});
  }
  void TearDown() override {
    visitors_.clear();
    context_.reset();
    door_.reset();
    ControlWorld::TearDown();
  }
  void open_door() {
    ClientDoor::World world;
    world.welcome = [this](const std::string& user) -> Result<node::Caller> {
      if (const auto found = uids_.find(user); found != uids_.end()) return node::Caller{user, found->second};
      return fail(ErrorCode::refused, "could not serve " + user, "ask");
    };
    world.adopt = [this](int fd, const node::Caller& caller) { server_->adopt(fd, caller, sink_); };
    auto door = ClientDoor::open(at_, cluster_, std::move(world), log_);
    ASSERT_TRUE(door) << door.error().text();
    door_ = std::move(*door);
  }
  // Serves until `done` holds; as the daemon's loop does it, only when descriptor or deadline say so.
  ::testing::AssertionResult until(const std::function<bool()>& done, Duration patience = kPatience) {
    for (const Instant end = testing::now() + patience; testing::now() < end;) {
      pollfd waiting[] = {{door_->fd(), POLLIN, 0}, {server_->fd(), POLLIN, 0}};
      const bool due = std::min(door_->deadline(), server_->deadline()) <= now_;
      ::poll(waiting, 2, due ? 0 : 1);
      if (waiting[0].revents != 0 || door_->deadline() <= now_) door_->dispatch(now_);
      if (waiting[1].revents != 0 || server_->deadline() <= now_) server_->dispatch(now_, sink_);
      if (done()) return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "did not happen";
  }
  Visitor& visitor(const KeyPair& own, std::string_view name = "") {
    visitors_.push_back(std::make_unique<Visitor>(*context_, at_, own, door_key(cluster_.pairs[0]).public_key, name));
    return *visitors_.back();
  }
  // One who has been let in.
  Visitor& guest(const KeyPair& own) {
    Visitor& one = visitor(own);
    one.hello();
    const node::ConnectionId last = sink_.open.empty() ? 0 : opened();  // an earlier one may close meanwhile
    EXPECT_TRUE(until([&] { return one.has(wire::BridgeWord::hello) && !sink_.open.empty() && opened() > last; }));
    return one;
  }
  ClientKeys keys_of(const KeyPair& own) const { return {own, {door_key(cluster_.pairs[0]).public_key}}; }
  // Opens while the door is served.
  Result<std::unique_ptr<ClientLink>> link(const ClientKeys& keys, std::chrono::seconds patience = std::chrono::seconds(20)) {
    auto opened =
        std::async(std::launch::async, [&] { return ClientLink::open(at_.text(), keys, std::chrono::steady_clock::now() + patience); });
    EXPECT_TRUE(until([&] { return opened.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    return opened.get();
  }

  const KeyPair anne_ = make_pair(), bob_ = make_pair(), stranger_ = make_pair();
  ClusterKeys cluster_{{make_pair()}};
  wire::Endpoint at_ = free_endpoint();
  std::map<std::string, std::uint32_t> uids_{{"anne", kAnne}, {"bob", kBob}};
  Lines log_;
  std::optional<ZmqContext> context_;
  std::unique_ptr<ClientDoor> door_;
  std::vector<std::unique_ptr<Visitor>> visitors_;
};

}  // namespace dtrain::net::testing
