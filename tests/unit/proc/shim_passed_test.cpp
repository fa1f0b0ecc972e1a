// Descriptors that come along with a task's notifications: whoever drops one last does what its close costs, never its shim.
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>

#include "agent/proc/pass_descriptors.h"
#include "tests/unit/net/lingering_socket.h"
#include "tests/unit/proc/shim_world.h"

namespace dtrain::proc {
namespace {

using lab::LingeringSocket;

class ShimPassedTest : public ShimWorld {
 protected:
  void SetUp() override {
    use();
    launch(shell("exec sleep 1000000"));
    world_->runner().start(id_, 1);
    ASSERT_TRUE(until<node::AttemptStarted>());
    socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string path = world_->directory(id_) + "/notify";
    ASSERT_LT(path.size(), sizeof name.sun_path);
    std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
    ASSERT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }
  // The shim stands still meanwhile: else it may be this process that drops it last.
  void pass(LingeringSocket& lingering, const std::string& text) {
    world_->shim_stops(id_);
    EXPECT_EQ(lingering.pass(socket_.get(), text), 0);
    world_->shim_continues(id_);
  }
  void expect_told(const std::string& status) {
    events_.clear();
    const std::string text = "STATUS=" + status;
    ASSERT_EQ(::send(socket_.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    // What was passed before may be told only now.
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    const auto told = [&] { return last<node::Notified>() != nullptr && last<node::Notified>()->status == status; };
    EXPECT_TRUE(world_->pump(sink, told)) << status;
  }
  // Far less than the half minute that it would cost.
  void expect_quick() const { EXPECT_LT(std::chrono::steady_clock::now() - began_, 10s); }

  UniqueFd socket_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

TEST_F(ShimPassedTest, OneThatIsSlowToCloseHoldsNobodyUp) {
  LingeringSocket lingering;
  pass(lingering, "READY=1");
  ASSERT_TRUE(until<node::Notified>());
  EXPECT_TRUE(last<node::Notified>()->ready) << "the message counts";
  expect_told("at work");
  EXPECT_TRUE(lingering.is_closed());
  world_->runner().kill(id_);
  EXPECT_TRUE(until<node::AttemptExited>());
  expect_quick();
}

TEST_F(ShimPassedTest, MoreThanAreHeldAtATime) {
  for (int i = 0; i < 40; ++i) {
    LingeringSocket lingering;
    pass(lingering, "WATCHDOG=1");
    expect_told("after " + std::to_string(i));
  }
  expect_quick();
}

// A thousand datagrams of another user take their time, whatever the sender does, and the task's own are read.
TEST_F(ShimPassedTest, AFloodOfStrangersIsReadSlowly) {
  if (::geteuid() != 0) return;  // nobody else can be had
  constexpr uid_t kStranger = 65534;
  constexpr int kFlood = 1000;
  const auto began = std::chrono::steady_clock::now();
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setuid(kStranger) != 0) ::_exit(1);
    for (int i = 0; i < kFlood; ++i)
      if (::send(socket_.get(), "STATUS=strange", 14, 0) < 0) ::_exit(2);
    ::_exit(0);
  }
  ASSERT_GT(stranger, 0);
  expect_told("at work");
  int status = -1;
  ASSERT_EQ(::waitpid(stranger, &status, 0), stranger);
  EXPECT_EQ(status, 0);
  EXPECT_GT(std::chrono::steady_clock::now() - began, 700ms) << "100 in 100 ms";
  expect_quick();
}

TEST_F(ShimPassedTest, ABarrierIsPassed) {
  int barrier[2];
  ASSERT_EQ(::pipe2(barrier, O_CLOEXEC), 0);
  const UniqueFd end(barrier[0]);
  ASSERT_TRUE((send_descriptors<1>(socket_.get(), {barrier[1]})));
  ::close(barrier[1]);
  pollfd wait{barrier[0], POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 10'000), 1);
  char byte;
  EXPECT_EQ(::read(barrier[0], &byte, 1), 0);
}

TEST_F(ShimPassedTest, OneThatComesWhenAllIsOverHoldsNobodyUp) {
  world_->runner().kill(id_);
  ASSERT_TRUE(until<node::AttemptExited>());
  world_->shim_stops(id_);
  LingeringSocket lingering;
  ASSERT_EQ(lingering.pass(socket_.get(), "READY=1"), 0);
  world_->runner().end(id_);
  world_->shim_continues(id_);
  ASSERT_TRUE(until<node::ShimGone>());
  expect_quick();
  EXPECT_TRUE(lingering.is_closed());
}

}  // namespace
}  // namespace dtrain::proc
