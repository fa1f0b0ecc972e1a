#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>

#include "tests/unit/net/control_world.h"

namespace dtrain::net {
namespace {

using testing::Client;
using ControlDescriptorsTest = testing::ControlWorld;

TEST_F(ControlDescriptorsTest, RunningOutOfDescriptorsRefusesInsteadOfSpinning) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  Client client(path_);
  // The lowest free number is the first that may not be opened any more.
  const int next = ::dup(client.fd);
  ::close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  server_->dispatch(now_, sink_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  client.receive();
  EXPECT_TRUE(client.at_end || server_->connections() == 0);
  Client later(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 1; }));
}

// A limit on descriptors that none is free below, until the end of the scope.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{3, before_.rlim_max};  // of those in use; poll() wants some
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

TEST_F(ControlDescriptorsTest, WithNothingLeftToRefuseWithItWaitsInsteadOfSpinning) {
  const auto has_work = [&] {
    pollfd wait{server_->fd(), POLLIN, 0};
    return ::poll(&wait, 1, 0) == 1 || server_->deadline() <= now_;
  };
  Client early(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 1; }));
  Client client(path_);
  ASSERT_TRUE(has_work());
  {
    // Below the limit nothing is free: the spare that is given up for the refusal cannot be had again.
    const NoDescriptors none;
    for (int turn = 0; turn < 2; ++turn) server_->dispatch(now_, sink_);
    EXPECT_FALSE(has_work());
    EXPECT_EQ(server_->deadline(), now_ + ControlLimits{}.shut);
    now_ += ControlLimits{}.shut;
    EXPECT_TRUE(has_work());
    for (int turn = 0; turn < 2; ++turn) server_->dispatch(now_, sink_);
    EXPECT_FALSE(has_work());
    // Who is connected is served all the while.
    early.send(request(7));
    server_->dispatch(now_, sink_);
    EXPECT_EQ(sink_.messages.size(), 1u);
  }
  now_ += ControlLimits{}.shut;
  ASSERT_TRUE(serve([&] { return server_->connections() == 2; }));  // it was not lost
  EXPECT_EQ(server_->deadline(), kNever);
  // The spare is back: the next in want is refused again.
  Client refused(path_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::dup(refused.fd);
  ::close(next);
  const rlimit full{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &full), 0);
  server_->dispatch(now_, sink_);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  refused.receive();
  EXPECT_TRUE(refused.at_end);
}

TEST_F(ControlDescriptorsTest, AClosedConnectionOpensTheDoorAgain) {
  auto early = std::make_unique<Client>(path_);
  ASSERT_TRUE(serve([&] { return server_->connections() == 1; }));
  Client client(path_);
  {
    const NoDescriptors none;
    for (int turn = 0; turn < 2; ++turn) server_->dispatch(now_, sink_);
    ASSERT_EQ(server_->deadline(), now_ + ControlLimits{}.shut);
  }
  early.reset();
  ASSERT_TRUE(serve([&] { return server_->connections() == 1 && !sink_.closed.empty(); }));  // no time passes
  EXPECT_EQ(server_->deadline(), kNever);
}

}  // namespace
}  // namespace dtrain::net
