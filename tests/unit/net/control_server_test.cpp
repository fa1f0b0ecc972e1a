#include "agent/net/control_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/unit/net/control_world.h"

namespace dtrain::net {
namespace {

using testing::Client;
using ::testing::HasSubstr;
using ControlServerTest = testing::ControlWorld;

TEST_F(ControlServerTest, CarriesRequestsAndReplies) {
  Client client(path_);
  client.send(request(1) + request(2).substr(0, 3));
  ASSERT_TRUE(serve([&] { return sink_.messages.size() == 1; }));
  client.send(request(2).substr(3));
  ASSERT_TRUE(serve([&] { return sink_.messages.size() == 2; }));
  EXPECT_EQ(sink_.messages[1].second.request, 2u);
  server_->send(opened(), wire::make_message(wire::MessageType::ok, 2, wire::Empty{}));
  const auto replies = client.receive();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].request, 2u);
  EXPECT_TRUE(server_->flushed());
}

TEST_F(ControlServerTest, KnowsTheCaller) {
  Client client(path_);
  ASSERT_TRUE(serve([&] { return !sink_.open.empty(); }));
  const node::Caller& caller = sink_.open.begin()->second;
  EXPECT_EQ(caller.uid, ::getuid());
  const passwd* entry = ::getpwuid(::getuid());
  EXPECT_EQ(caller.user, entry ? entry->pw_name : "");
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
}

TEST_F(ControlServerTest, ReportsAClientThatGoes) {
  {
    Client client(path_);
    ASSERT_TRUE(serve([&] { return !sink_.open.empty(); }));
  }
  ASSERT_TRUE(serve([&] { return sink_.closed.size() == 1; }));
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(ControlServerTest, AnswersJunkAndCloses) {
  std::mt19937 random(3);
  std::string junk(4096, '\0');
  for (char& c : junk) c = static_cast<char>(random());
  const std::string cases[] = {
      junk,
      std::string("\x00\x00\x00\x40", 4),      // 1 GiB announced
      std::string("\x04\x00\x00\x00junk", 8),  // no message
      std::string("\xff\xff\xff\xff", 4) + junk,
  };
  for (const std::string& bytes : cases) {
    Client client(path_);
    client.send(bytes);
    std::vector<wire::Message> replies;
    ASSERT_TRUE(serve([&] {
      for (auto& m : client.receive()) replies.push_back(std::move(m));
      return client.at_end;
    }));
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies[0].type, wire::MessageType::error);
  }
  EXPECT_TRUE(sink_.messages.empty());
  Client good(path_);
  good.send(request(1));
  ASSERT_TRUE(serve([&] { return sink_.messages.size() == 1; }));
}

TEST_F(ControlServerTest, HalfAMessageThenEndIsAnswered) {
  Client client(path_);
  const std::string whole = request(1);
  client.send(whole.substr(0, whole.size() / 2));
  ::shutdown(client.fd, SHUT_WR);
  std::vector<wire::Message> replies;
  ASSERT_TRUE(serve([&] {
    for (auto& m : client.receive()) replies.push_back(std::move(m));
    return client.at_end;
  }));
  ASSERT_EQ(replies.size(), 1u);
  const auto error = wire::decode<wire::ErrorReply>(replies[0].payload);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->errors.at(0).message, HasSubstr("ended in the middle"));
}

TEST_F(ControlServerTest, AHalfMessageThatStallsIsClosed) {
  Client client(path_);
  client.send(request(1).substr(0, 7));
  ASSERT_TRUE(serve([&] { return server_->deadline() != kNever; }));
  EXPECT_EQ(server_->deadline(), now_ + ControlLimits{}.message_idle);
  now_ += ControlLimits{}.message_idle - 1ns;
  server_->dispatch(now_, sink_);
  EXPECT_EQ(server_->connections(), 1u);
  now_ += 1ns;
  ASSERT_TRUE(serve([&] { return server_->connections() == 0; }));
  EXPECT_EQ(client.receive().size(), 1u);
}

TEST_F(ControlServerTest, AnIdleConnectionCostsNoWakeUps) {
  Client client(path_);
  client.send(request(1));
  ASSERT_TRUE(serve([&] { return sink_.messages.size() == 1; }));
  EXPECT_EQ(server_->deadline(), kNever);
  pollfd wait{server_->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0);
}

TEST_F(ControlServerTest, RefusesMoreConnectionsThanAllowed) {
  ControlLimits limits;
  limits.connections = 3;
  start(limits);
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) clients.emplace_back(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 3; }));
  Client extra(path_);
  ASSERT_TRUE(serve([&] { return !extra.receive().empty() || extra.at_end; }));
  ASSERT_TRUE(serve([&] {
    extra.receive();
    return extra.at_end;
  }));
  EXPECT_EQ(server_->connections(), 3u);
  clients.pop_back();
  ASSERT_TRUE(serve([&] { return server_->connections() == 2; }));
  Client next(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 3; }));
}

TEST_F(ControlServerTest, AUserMayTakeAPartAndAllTogetherLeaveSomeToRoot) {
  ControlLimits limits;
  limits.connections = 6;
  limits.connections_of_user = 2;
  limits.connections_of_root = 1;
  start(limits);
  std::vector<int> ends;
  const auto connect_as = [&](std::uint32_t uid) {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    ends.push_back(pair[1]);
    const std::size_t before = server_->connections();
    server_->adopt(pair[0], {"user" + std::to_string(uid), uid}, sink_);
    return server_->connections() == before + 1;
  };
  const std::uint32_t own = ::geteuid(), first = own + 1000;
  EXPECT_TRUE(connect_as(first));
  EXPECT_TRUE(connect_as(first));
  EXPECT_FALSE(connect_as(first)) << "its part";
  char said[4096];
  EXPECT_GT(::read(ends.back(), said, sizeof(said)), 0) << "it is told";
  EXPECT_TRUE(connect_as(first + 1));
  EXPECT_TRUE(connect_as(first + 1));
  EXPECT_TRUE(connect_as(first + 2));
  EXPECT_FALSE(connect_as(first + 2)) << "the last is for root";
  EXPECT_TRUE(connect_as(own));
  EXPECT_FALSE(connect_as(own)) << "there is no more";
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_TRUE(serve([&] { return server_->connections() == 4; }));
  EXPECT_TRUE(connect_as(first)) << "what was closed counts no more";
  for (std::size_t i = 2; i < ends.size(); ++i) ::close(ends[i]);
}

TEST_F(ControlServerTest, TheUnwelcomeAreToldSoAndNothingOfTheirsIsRead) {
  pid_t seen = 0;
  start({}, [&](pid_t pid) -> Result<std::optional<AssignmentId>> {
    seen = pid;
    return fail(ErrorCode::refused, "it comes from inside a task");
  });
  Client task(path_);
  task.send(request(1));
  std::vector<wire::Message> said;
  ASSERT_TRUE(serve([&] {
    for (wire::Message& message : task.receive()) said.push_back(std::move(message));
    return task.at_end;
  }));
  EXPECT_EQ(seen, ::getpid());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said.front().payload.find("inside a task"), std::string::npos);
  EXPECT_TRUE(sink_.open.empty());
  EXPECT_TRUE(sink_.messages.empty());
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(ControlServerTest, ATasksConnectionSaysSoAndHasItsOwnLimit) {
  const AssignmentId task{7, 2, {"launcher", 0}};
  std::optional<AssignmentId> whose = task;
  ControlLimits limits;
  limits.connections_of_tasks = 2;
  start(limits, [&](pid_t) -> Result<std::optional<AssignmentId>> { return whose; });
  Client first(path_), second(path_), third(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 2; }));
  for (const auto& [connection, caller] : sink_.open) EXPECT_EQ(caller.inside, task);
  ASSERT_TRUE(serve([&] {
    third.receive();
    return third.at_end;
  })) << "root's tasks have a limit, too";
  whose.reset();
  Client own(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 3; })) << "they take no place of the user's";
  EXPECT_EQ(sink_.open.rbegin()->second.inside, std::nullopt);
}

TEST_F(ControlServerTest, ManyIdleConnectionsCostLittle) {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const std::size_t wanted = std::min<std::size_t>(1000, files.rlim_cur / 2 - 50);
  ControlLimits limits;
  limits.connections = wanted;
  start(limits);
  std::vector<Client> clients;
  for (std::size_t i = 0; i < wanted; ++i) {
    clients.emplace_back(path_);
    if (i % 50 == 49) {
      ASSERT_TRUE(serve([&] { return server_->connections() == i + 1; }));
    }
  }
  ASSERT_TRUE(serve([&] { return server_->connections() == wanted; }));
  EXPECT_EQ(server_->deadline(), kNever);
  clients.front().send(request(9));
  ASSERT_TRUE(serve([&] { return sink_.messages.size() == 1; }));
}

TEST_F(ControlServerTest, AClientThatDoesNotReadIsClosedAtItsLimit) {
  ControlLimits limits;
  limits.output_bytes = 1 << 20;
  start(limits);
  Client client(path_);
  ASSERT_TRUE(serve([&] { return !sink_.open.empty(); }));
  const auto id = opened();
  const auto message = wire::make_message(wire::MessageType::jobs, 1, wire::JobName{std::string(100'000, 'y')});
  std::size_t sent = 0;
  while (server_->room(id) > 0 && sent < 1000) {
    server_->send(id, message);
    ++sent;
  }
  EXPECT_LT(sent, 1000u);
  server_->send(id, message);
  ASSERT_TRUE(serve([&] { return server_->connections() == 0; }));
  EXPECT_EQ(sink_.closed, std::vector<node::ConnectionId>{id});
  server_->send(id, message);  // swallowed
  EXPECT_TRUE(server_->flushed());
}

TEST_F(ControlServerTest, UnsentOutputIsLimitedOverAll) {
  ControlLimits limits;
  limits.total_output_bytes = 2 << 20;
  start(limits);
  std::vector<Client> clients;
  for (int i = 0; i < 10; ++i) clients.emplace_back(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 10; }));
  const auto message = wire::make_message(wire::MessageType::jobs, 1, wire::JobName{std::string(1'000'000, 'y')});
  std::vector<node::ConnectionId> ids;
  for (const auto& [id, caller] : sink_.open) ids.push_back(id);
  for (const auto id : ids) server_->send(id, message);
  server_->dispatch(now_, sink_);
  EXPECT_LT(server_->connections(), 10u);
  EXPECT_GT(server_->connections(), 0u);
}

TEST_F(ControlServerTest, UnfinishedInputIsLimitedOverAll) {
  ControlLimits limits;
  limits.total_input_bytes = 256 << 10;
  start(limits);
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) clients.emplace_back(path_);
  const std::string start_of_message = request(1, 1 << 20).substr(0, 100 << 10);
  std::vector<std::size_t> sent(8, 0);
  ASSERT_TRUE(serve([&] {
    for (std::size_t i = 0; i < 8; ++i) sent[i] += clients[i].send_some(std::string_view(start_of_message).substr(sent[i]));
    return !sink_.closed.empty();
  }));
  EXPECT_LT(server_->connections(), 8u);
}

TEST_F(ControlServerTest, LargeRepliesArriveWholeAndDrainIsReported) {
  Client client(path_);
  ASSERT_TRUE(serve([&] { return !sink_.open.empty(); }));
  const std::string large(3'000'000, 'z');
  server_->send(opened(), wire::make_message(wire::MessageType::jobs, 5, wire::JobName{large}));
  EXPECT_FALSE(server_->flushed());
  std::vector<wire::Message> replies;
  ASSERT_TRUE(serve([&] {
    for (auto& m : client.receive()) replies.push_back(std::move(m));
    return !replies.empty();
  }));
  EXPECT_EQ(wire::decode<wire::JobName>(replies[0].payload)->job, large);
  ASSERT_TRUE(serve([&] { return sink_.drained.size() == 1; }));
}

TEST_F(ControlServerTest, AReplyAboveTheFrameLimitBecomesAnError) {
  Client client(path_);
  ASSERT_TRUE(serve([&] { return !sink_.open.empty(); }));
  server_->send(opened(), wire::make_message(wire::MessageType::jobs, 5, wire::JobName{std::string(5 << 20, 'z')}));
  std::vector<wire::Message> replies;
  ASSERT_TRUE(serve([&] {
    for (auto& m : client.receive()) replies.push_back(std::move(m));
    return !replies.empty();
  }));
  EXPECT_EQ(replies[0].type, wire::MessageType::error);
  EXPECT_EQ(replies[0].request, 5u);
}

TEST_F(ControlServerTest, PausedConnectionsWaitAndLoseNothing) {
  Client client(path_);
  sink_.at_message = [&](node::ConnectionId c) { server_->pause(c); };
  client.send(request(1) + request(2) + request(3));
  ASSERT_TRUE(serve([&] { return sink_.messages.size() == 1; }));
  server_->dispatch(now_, sink_);
  EXPECT_EQ(sink_.messages.size(), 1u);
  sink_.at_message = nullptr;
  server_->resume(opened());
  ASSERT_TRUE(serve([&] { return sink_.messages.size() == 3; }));
  EXPECT_EQ(sink_.messages[2].second.request, 3u);
}

TEST_F(ControlServerTest, APausedClientThatGoesIsNoticed) {
  {
    Client client(path_);
    sink_.at_message = [&](node::ConnectionId c) { server_->pause(c); };
    client.send(request(1));
    ASSERT_TRUE(serve([&] { return sink_.messages.size() == 1; }));
  }
  ASSERT_TRUE(serve([&] { return server_->connections() == 0; }));
}

TEST_F(ControlServerTest, AFloodOfMessagesIsDeliveredInOrderOverSeveralTurns) {
  Client client(path_);
  std::string bytes;
  constexpr std::uint64_t kCount = 1000;
  for (std::uint64_t i = 1; i <= kCount; ++i) bytes += request(i);
  std::size_t sent = 0;
  std::size_t most_in_one_turn = 0, before = 0;
  ASSERT_TRUE(serve([&] {
    most_in_one_turn = std::max(most_in_one_turn, sink_.messages.size() - before);
    before = sink_.messages.size();
    sent += client.send_some(std::string_view(bytes).substr(sent));
    return sink_.messages.size() == kCount;
  }));
  EXPECT_LE(most_in_one_turn, 128u);
  for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(sink_.messages[i].second.request, i + 1);
}

TEST_F(ControlServerTest, CloseDeliversWhatWasSentBefore) {
  Client client(path_);
  ASSERT_TRUE(serve([&] { return !sink_.open.empty(); }));
  const auto id = opened();
  server_->send(id, wire::make_message(wire::MessageType::jobs, 5, wire::JobName{std::string(1'000'000, 'z')}));
  server_->close(id);
  server_->send(id, wire::make_message(wire::MessageType::ok, 6, wire::Empty{}));  // too late
  std::vector<wire::Message> replies;
  ASSERT_TRUE(serve([&] {
    for (auto& m : client.receive()) replies.push_back(std::move(m));
    return client.at_end;
  }));
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].request, 5u);
}

TEST_F(ControlServerTest, LingeringEnds) {
  Client client(path_);
  ASSERT_TRUE(serve([&] { return !sink_.open.empty(); }));
  server_->send(opened(), wire::make_message(wire::MessageType::jobs, 5, wire::JobName{std::string(3'000'000, 'z')}));
  server_->close(opened());
  EXPECT_EQ(server_->deadline(), now_ + ControlLimits{}.linger);
  now_ += ControlLimits{}.linger;
  ASSERT_TRUE(serve([&] { return server_->connections() == 0; }));
}

TEST_F(ControlServerTest, ASinkMayCloseTheConnectionItIsToldOf) {
  Client client(path_);
  sink_.at_message = [&](node::ConnectionId c) { server_->close(c); };
  client.send(request(1) + request(2));
  ASSERT_TRUE(serve([&] { return server_->connections() == 0; }));
  EXPECT_EQ(sink_.messages.size(), 1u);
}

TEST_F(ControlServerTest, SocketsOfTheDeadAreReplacedThoseOfTheLivingAreNot) {
  const auto second = ControlServer::listen(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  // What a killed agent leaves: a name without a listener.
  const std::string stale = dir_ + "/stale.sock";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  stale.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
  EXPECT_TRUE(ControlServer::listen(stale));
  std::ofstream(dir_ + "/file") << "mine";
  EXPECT_EQ(ControlServer::listen(dir_ + "/file").error().code, ErrorCode::refused);
  EXPECT_EQ(ControlServer::listen(dir_ + "/" + std::string(200, 'p')).error().code, ErrorCode::invalid);
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace dtrain::net
