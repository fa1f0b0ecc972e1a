// A Connection is the same whichever way it goes: over a control socket, or through the door of an agent on another machine.
#include <gtest/gtest.h>
#include <poll.h>
#include <sodium.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/base/boot_clock.h"
#include "agent/dtrainctl/client.h"
#include "agent/net/client_door.h"
#include "agent/net/control_server.h"
#include "common/wire/client_key_file.h"
#include "tests/unit/dtrainctl/fake_agent.h"

namespace dtrain::ctl {
namespace {

constexpr std::size_t kManyBytes = 3 << 20;  // of one answer: many windows

struct NoLog : Log {
  using Log::write;
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

net::KeyPair make_pair() {
  net::KeyPair pair;
  ::crypto_box_keypair(pair.public_key.data(), pair.secret_key.data());
  return pair;
}

// An agent's two ways in, on a thread of its own. Answers each JobName as its name says.
class TwoWays : net::ControlSink {
 public:
  TwoWays(const std::string& path, const wire::Endpoint& at, const net::CurveKey& client) {
    auto server = net::ControlServer::listen(path);
    EXPECT_TRUE(server);
    server_ = std::move(*server);
    net::ClientDoor::World world;
    world.welcome = [](const std::string& user) { return node::Caller{user, 1001}; };
    world.adopt = [this](int fd, const node::Caller& caller) { server_->adopt(fd, caller, *this); };
    auto door = net::ClientDoor::open(at, {{cluster}}, std::move(world), log_);
    EXPECT_TRUE(door) << door.error().text();
    door_ = std::move(*door);
    door_->allow({{client, "anne"}});
    thread_ = std::thread([this] { serve(); });
  }
  ~TwoWays() override {
    stop_ = true;
    thread_.join();
  }

  const net::KeyPair cluster = make_pair();

 private:
  void serve() {
    while (!stop_) {
      pollfd waiting[] = {{door_->fd(), POLLIN, 0}, {server_->fd(), POLLIN, 0}};
      ::poll(waiting, 2, 1);
      const Instant now = boot_now();
      door_->dispatch(now);
      server_->dispatch(now, *this);
    }
  }
  node::ConnectionId next_connection() override { return ++last_; }
  void on_opened(node::ConnectionId, const node::Caller&) override {}
  void on_message(node::ConnectionId connection, wire::Message message) override {
    const auto asked = wire::decode<wire::JobName>(message.payload);
    const std::string what = asked ? asked->job : "";
    if (what == "refuse")
      return server_->send(
          connection, wire::make_message(wire::MessageType::error, message.request, wire::error_reply({ErrorCode::refused, "no", "ask"})));
    if (what == "close") return server_->close(connection);
    if (what == "silent") return;
    const std::size_t bytes = what == "much" ? kManyBytes : 10;
    server_->send(connection,
                  wire::make_message(wire::MessageType::version, message.request, wire::VersionReply{std::string(bytes, 'v'), "n"}));
  }
  void on_closed(node::ConnectionId) override {}
  void on_drained(node::ConnectionId) override {}

  NoLog log_;
  std::unique_ptr<net::ControlServer> server_;
  std::unique_ptr<net::ClientDoor> door_;
  node::ConnectionId last_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class EitherWay : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_GE(::sodium_init(), 0);
    const net::KeyPair own = make_pair();
    const auto part = [](std::uint32_t of) { return std::to_string(1 + ::randombytes_uniform(of)); };
    const wire::Endpoint at{"127." + std::to_string(100 + ::getpid() % 90) + "." + part(250) + "." + part(250),
                            static_cast<std::uint16_t>(20'000 + ::randombytes_uniform(10'000))};
    agent_ = std::make_unique<TwoWays>(dir_.path() + "/s", at, own.public_key);
    const std::string key_file = dir_.path() + "/key";
    std::ofstream(key_file) << wire::render_client_key_file(
        {{own.public_key, own.secret_key}, {net::door_key(agent_->cluster).public_key}});
    std::filesystem::permissions(key_file, std::filesystem::perms{0600});
    address_ = GetParam() ? AgentAddress{at.text(), key_file} : AgentAddress{dir_.path() + "/s", ""};
  }
  static Deadline soon() { return Clock::now() + std::chrono::seconds(20); }
  Outcome<wire::VersionReply> ask(Connection& connection, const std::string& what, Deadline deadline = soon()) {
    return connection.call<wire::VersionReply>(wire::MessageType::query_version, wire::JobName{what}, wire::MessageType::version, deadline);
  }

  TempDir dir_;
  std::unique_ptr<TwoWays> agent_;
  AgentAddress address_;
};

TEST_P(EitherWay, AnswersBigAndSmall) {
  auto connection = Connection::open(address_, soon());
  ASSERT_TRUE(connection) << connection.error().items[0].message;
  for (const char* what : {"", "much", "", "much"}) {
    const auto reply = ask(*connection, what);
    ASSERT_TRUE(reply) << reply.error().items[0].message;
    EXPECT_EQ(reply->version.size(), *what == 0 ? 10u : kManyBytes);
  }
}

TEST_P(EitherWay, RefusalIsTheAgents) {
  auto connection = Connection::open(address_, soon());
  ASSERT_TRUE(connection);
  const auto reply = ask(*connection, "refuse");
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::refused);
  EXPECT_FALSE(reply.error().lost);
}

TEST_P(EitherWay, NoAnswerInTime) {
  auto connection = Connection::open(address_, soon());
  ASSERT_TRUE(connection);
  const auto reply = ask(*connection, "silent", Clock::now() + std::chrono::milliseconds(50));
  ASSERT_FALSE(reply);
  EXPECT_NE(reply.error().items[0].message.find("none came in time"), std::string::npos);
  EXPECT_TRUE(ask(*connection, "")) << "it can go on";
}

TEST_P(EitherWay, AnAgentThatClosesIsLost) {
  auto connection = Connection::open(address_, soon());
  ASSERT_TRUE(connection);
  const auto reply = ask(*connection, "close");
  ASSERT_FALSE(reply);
  EXPECT_TRUE(reply.error().lost);
  EXPECT_EQ(reply.error().items[0].message, "could not talk to the agent: it closed the connection");
  *connection = std::move(*Connection::open(address_, soon()));  // in its place
  EXPECT_TRUE(ask(*connection, "much"));
}

TEST_P(EitherWay, AnAgentThatIsNotThereIsLost) {
  agent_.reset();
  const auto connection = Connection::open(address_, soon());
  ASSERT_FALSE(connection);
  EXPECT_TRUE(connection.error().lost);
  EXPECT_EQ(connection.error().code(), ErrorCode::unavailable);
  EXPECT_NE(connection.error().items[0].message.find(address_.at), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Connection, EitherWay, testing::Bool(),
                         [](const auto& way) { return way.param ? "through_the_door" : "over_the_socket"; });

}  // namespace
}  // namespace dtrain::ctl
