// Descriptors that come along on the control socket. Whoever drops one last does what its close costs: never the agent's loop.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>

#include "tests/unit/net/control_world.h"
#include "tests/unit/net/lingering_socket.h"

namespace dtrain::net {
namespace {

using lab::LingeringSocket;
using testing::Client;

Result<std::optional<AssignmentId>> unwelcome(pid_t) { return fail(ErrorCode::refused, "it comes from inside a task"); }

class ControlPassedTest : public testing::ControlWorld {
 protected:
  void start_as_on_an_older_kernel(ControlServer::TaskOf task_of = {}) {
    ControlLimits limits;
    limits.kernel_refuses_descriptors = false;
    start(limits, std::move(task_of));
  }
  // Far less than the half minute that it would cost.
  void expect_quick() const { EXPECT_LT(std::chrono::steady_clock::now() - began_, 10s); }
  void expect_served() {
    Client other(path_);
    other.send(request(7));
    EXPECT_TRUE(serve([&] { return !sink_.messages.empty(); }));
  }
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

TEST_F(ControlPassedTest, TheKernelRefusesThem) {
  LingeringSocket lingering;
  Client client(path_);
  const int refused = lingering.pass(client.fd, "x");
  if (refused == 0)  // a kernel without SO_PASSRIGHTS (before Linux 6.16): the agent does
    ASSERT_TRUE(serve([&] { return sink_.closed.size() == 1; }));
  else EXPECT_EQ(refused, EPERM);
  expect_served();
}

TEST_F(ControlPassedTest, WhoSendsOneIsToldAndClosed) {
  start_as_on_an_older_kernel();
  LingeringSocket lingering;
  Client client(path_);
  client.send(request(1).substr(0, 3));
  ASSERT_EQ(lingering.pass(client.fd, "x"), 0);
  ASSERT_TRUE(serve([&] { return sink_.closed.size() == 1; }));
  const auto said = client.receive();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].type, wire::MessageType::error);
  EXPECT_TRUE(client.at_end);
  expect_served();
  expect_quick();
  EXPECT_TRUE(lingering.is_closed());
}

TEST_F(ControlPassedTest, OneBesideAByteOutOfBand) {
  start_as_on_an_older_kernel();
  LingeringSocket lingering;
  Client client(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 1; }));
  if (lingering.pass(client.fd, "x", MSG_OOB) != 0) return;  // a kernel on which nobody can
  client.send(request(1));
  ASSERT_TRUE(serve([&] { return sink_.closed.size() == 1; }));
  expect_served();
  expect_quick();
  EXPECT_TRUE(lingering.is_closed());
}

TEST_F(ControlPassedTest, OfWhoIsTurnedAwayUnread) {
  start_as_on_an_older_kernel(unwelcome);
  LingeringSocket lingering;
  Client client(path_);
  ASSERT_EQ(lingering.pass(client.fd, "x"), 0);
  ASSERT_TRUE(serve([&] {
    client.receive();
    return client.at_end;
  }));
  expect_quick();
  EXPECT_TRUE(lingering.is_closed());
}

TEST_F(ControlPassedTest, OfWhoIsGoneBeforeItIsAccepted) {
  start_as_on_an_older_kernel(unwelcome);
  LingeringSocket lingering;
  {
    Client client(path_);
    ASSERT_EQ(lingering.pass(client.fd, "x"), 0);
  }
  server_->dispatch(now_, sink_);
  expect_quick();
  EXPECT_TRUE(lingering.is_closed());
}

TEST_F(ControlPassedTest, OfWhoStillWaitsWhenTheAgentEnds) {
  start_as_on_an_older_kernel();
  LingeringSocket lingering;
  Client client(path_);
  ASSERT_EQ(lingering.pass(client.fd, "x"), 0);
  server_.reset();
  expect_quick();
  EXPECT_TRUE(lingering.is_closed());
}

TEST_F(ControlPassedTest, MoreThanAreClosedAtATime) {
  start_as_on_an_older_kernel(unwelcome);
  for (int i = 0; i < 2 * kMostClosing; ++i) {
    LingeringSocket lingering;
    Client client(path_);
    ASSERT_EQ(lingering.pass(client.fd, "x"), 0);
    ASSERT_TRUE(serve([&] {
      client.receive();
      return client.at_end;
    }));
  }
  expect_quick();
}

}  // namespace
}  // namespace dtrain::net
