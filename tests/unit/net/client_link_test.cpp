// The way of a dtrainctl to the agent of another machine: bytes both ways, and what is said where there is no way.
#include "agent/net/client_link.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>

#include "common/wire/client_key_file.h"
#include "tests/unit/net/door_world.h"

namespace dtrain::net::testing {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

class ClientLinkTest : public DoorWorld {
 protected:
  // Failures need nobody that serves.
  Result<std::unique_ptr<ClientLink>> try_link(const std::string& address, const ClientKeys& keys, steady_clock::duration patience) {
    return ClientLink::open(address, keys, steady_clock::now() + patience);
  }
};

TEST(ClientAddress, IsToldFromAPath) {
  for (const char* address : {"gpu01:7402", "10.0.0.1:7402", "[fd00::1]:7402"}) EXPECT_TRUE(is_host_and_port(address)) << address;
  for (const char* path : {"", "control.sock", "/run/a:1/control.sock", "/run/a:1", "gpu01:", "gpu01:http"})
    EXPECT_FALSE(is_host_and_port(path)) << path;
}

TEST_F(ClientLinkTest, CarriesRequestsAndReplies) {
  auto way = link(keys_of(anne_));
  ASSERT_TRUE(way) << way.error().text();
  Client client((*way)->take_socket(), Client::Adopted{});
  client.send(request(1));
  ASSERT_TRUE(until([&] { return sink_.messages.size() == 1; }));
  server_->send(opened(), wire::make_message(wire::MessageType::ok, 1, wire::Empty{}));
  std::vector<wire::Message> got;
  ASSERT_TRUE(until([&] {
    for (wire::Message& message : client.receive()) got.push_back(std::move(message));
    return got.size() == 1;
  }));
  EXPECT_EQ(sink_.open.begin()->second.user, "anne");
  // Closed here, closed there.
  ::close(std::exchange(client.fd, -1));
  EXPECT_TRUE(until([&] { return sink_.closed.size() == 1; }));
  EXPECT_EQ((*way)->cause(), "");
}

TEST_F(ClientLinkTest, CarriesMuchBothWaysAtOnce) {
  auto way = link(keys_of(anne_));
  ASSERT_TRUE(way) << way.error().text();
  Client client((*way)->take_socket(), Client::Adopted{});
  constexpr std::size_t kMessages = 40, kEach = 200 << 10;  // 8 MB: many windows
  std::string all;
  for (std::size_t i = 1; i <= kMessages; ++i) all += request(i, kEach);
  sink_.at_message = [this](node::ConnectionId c) {
    const wire::Message& message = sink_.messages.back().second;
    server_->send(c, message);  // as it came
    if (server_->room(c) < (4u << 20)) server_->pause(c);
  };
  std::size_t sent = 0, answers = 0;
  bool in_order = true;
  ASSERT_TRUE(until([&] {
    sent += client.send_some(std::string_view(all).substr(sent));
    for (const wire::Message& message : client.receive()) {
      in_order = in_order && message.request == ++answers && message.payload.size() > kEach;
    }
    if (server_->room(opened()) > (6u << 20)) server_->resume(opened());
    return answers == kMessages;
  }));
  EXPECT_TRUE(in_order);
  EXPECT_EQ(sent, all.size());
}

TEST_F(ClientLinkTest, LastWordsBeforeTheEndArrive) {
  auto way = link(keys_of(anne_));
  ASSERT_TRUE(way) << way.error().text();
  {
    Client client((*way)->take_socket(), Client::Adopted{});
    client.send(request(1));
    client.send(request(2));
  }
  way->reset();  // returns once they are on their way
  ASSERT_TRUE(until([&] { return sink_.closed.size() == 1; }));
  EXPECT_EQ(sink_.messages.size(), 2u);
}

TEST_F(ClientLinkTest, AnAgentThatGoesIsNoticed) {
  auto way = link(keys_of(anne_));
  ASSERT_TRUE(way) << way.error().text();
  Client client((*way)->take_socket(), Client::Adopted{});
  door_.reset();
  pollfd waiting{client.fd, POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, kPatienceMs), 1);
  client.receive();
  EXPECT_TRUE(client.at_end);
}

TEST_F(ClientLinkTest, NobodyThereIsSaidAtOnce) {
  const wire::Endpoint nobody = free_endpoint();
  const auto begun = steady_clock::now();
  const auto refused = try_link(nobody.text(), keys_of(anne_), seconds(20));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_NE(refused.error().text().find("could not reach agent " + nobody.text() + ": Connection refused; "), std::string::npos)
      << refused.error().text();
  EXPECT_LT(steady_clock::now() - begun, seconds(10));
}

TEST_F(ClientLinkTest, UnknownHostIsSaid) {
  const auto lost = try_link("no-such-host.invalid:7402", keys_of(anne_), seconds(20));
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::unavailable);
  EXPECT_EQ(lost.error().message.find("could not reach agent no-such-host.invalid:7402: "), 0u) << lost.error().message;
}

TEST_F(ClientLinkTest, WhoListensAndIsSilentIsGivenUpInTime) {
  const wire::Endpoint at = free_endpoint();
  const auto mute = ListenSocket::open(at);
  ASSERT_TRUE(mute);
  const auto begun = steady_clock::now();
  const auto silent = try_link(at.text(), keys_of(anne_), seconds(1));
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, ErrorCode::unavailable);
  EXPECT_NE(silent.error().message.find("who listens there does not answer"), std::string::npos) << silent.error().message;
  EXPECT_LT(steady_clock::now() - begun, seconds(10));
}

TEST_F(ClientLinkTest, AnAgentThatIsStuckIsGivenUpInTime) {
  // ZeroMQ's thread shakes hands only with the answer of its loop: nobody serves it here.
  const auto stuck = try_link(at_.text(), keys_of(anne_), seconds(1));
  ASSERT_FALSE(stuck);
  EXPECT_EQ(stuck.error().code, ErrorCode::unavailable);
  EXPECT_NE(stuck.error().message.find("does not answer"), std::string::npos) << stuck.error().message;
}

TEST_F(ClientLinkTest, KeyFileIsReadWithCare) {
  const wire::ClientKeyText text{{anne_.public_key, anne_.secret_key}, {door_key(cluster_.pairs[0]).public_key}};
  const std::string path = dir_ + "/anne.key";
  EXPECT_EQ(read_client_key_file(path).error().code, ErrorCode::not_found);
  std::ofstream(path) << wire::render_client_key_file(text);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const auto open_to_all = read_client_key_file(path);
  ASSERT_FALSE(open_to_all);
  EXPECT_EQ(open_to_all.error().code, ErrorCode::refused);
  EXPECT_NE(open_to_all.error().text().find("could not read client key " + path + ": others than its owner may access it; chmod 0600"),
            std::string::npos)
      << open_to_all.error().text();
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  const auto keys = read_client_key_file(path);
  ASSERT_TRUE(keys) << keys.error().text();
  EXPECT_EQ(keys->own.secret_key, anne_.secret_key);
  EXPECT_TRUE(link(*keys));
  wire::ClientKeyText torn = text;
  torn.own.public_key = bob_.public_key;
  std::ofstream(path, std::ios::trunc) << wire::render_client_key_file(torn);
  const auto mixed = read_client_key_file(path);
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message.find("does not belong to its secret"), std::string::npos) << mixed.error().message;
}

}  // namespace
}  // namespace dtrain::net::testing
