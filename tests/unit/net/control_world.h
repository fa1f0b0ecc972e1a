// A control socket in a directory of its own, clients of it, and a sink that writes down what it is told.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/net/control_server.h"

namespace dtrain::net::testing {
constexpr int kPatienceMs = 10'000;

struct Recorder : ControlSink {
  std::map<node::ConnectionId, node::Caller> open;
  std::vector<std::pair<node::ConnectionId, wire::Message>> messages;
  std::vector<node::ConnectionId> closed, drained;
  std::function<void(node::ConnectionId)> at_message;
  node::ConnectionId last = 0;
  node::ConnectionId next_connection() override { return ++last; }
  void on_opened(node::ConnectionId c, const node::Caller& caller) override { open[c] = caller; }
  void on_message(node::ConnectionId c, wire::Message m) override {
    messages.emplace_back(c, std::move(m));
    if (at_message) at_message(c);
  }
  void on_closed(node::ConnectionId c) override {
    closed.push_back(c);
    open.erase(c);
  }
  void on_drained(node::ConnectionId c) override { drained.push_back(c); }
};

struct Client {
  int fd = -1;
  wire::Deframer input;
  explicit Client(const std::string& path) {
    fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  struct Adopted {};
  Client(int connected, Adopted) : fd(connected) {}
  Client(Client&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  ~Client() {
    if (fd >= 0) ::close(fd);
  }
  // Takes what the socket takes.
  std::size_t send_some(std::string_view bytes) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  void send(std::string_view bytes) { EXPECT_EQ(send_some(bytes), bytes.size()); }
  bool at_end = false;
  // What has arrived so far.
  std::vector<wire::Message> receive() {
    char chunk[64 << 10];
    for (;;) {
      const ssize_t n = ::recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) at_end = true;
      if (n <= 0) break;
      input.feed(std::string_view(chunk, static_cast<std::size_t>(n)));
    }
    std::vector<wire::Message> out;
    for (auto m = input.next(); m && *m; m = input.next()) out.push_back(std::move(**m));
    return out;
  }
};

class ControlWorld : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "dtrain-net-XXXXXX").string();
    ASSERT_TRUE(::mkdtemp(name.data()));
    dir_ = name;
    path_ = dir_ + "/control.sock";
    start({});
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(dir_);
  }
  void start(const ControlLimits& limits, ControlServer::TaskOf task_of = {}) {
    server_.reset();
    auto server = ControlServer::listen(path_, limits, std::move(task_of));
    ASSERT_TRUE(server) << server.error().text();
    server_ = std::move(*server);
  }
  // Serves until `done` holds.
  ::testing::AssertionResult serve(const std::function<bool()>& done) {
    for (int waited = 0; waited < kPatienceMs; ++waited) {
      server_->dispatch(now_, sink_);
      if (done()) return ::testing::AssertionSuccess();
      pollfd wait{server_->fd(), POLLIN, 0};
      if (server_->deadline() > now_) ::poll(&wait, 1, 1);
    }
    return ::testing::AssertionFailure() << "did not happen";
  }
  std::string request(std::uint64_t number, std::size_t padding = 0) {
    return wire::frame(wire::make_message(wire::MessageType::query_jobs, number, wire::JobName{std::string(padding, 'x')}));
  }
  node::ConnectionId opened() { return sink_.open.rbegin()->first; }

  std::string dir_, path_;
  Instant now_{1h};
  Recorder sink_;
  std::unique_ptr<ControlServer> server_;
};

}  // namespace dtrain::net::testing
