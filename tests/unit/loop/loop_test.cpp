#include "agent/loop/loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/loop/clock.h"
#include "agent/loop/signals.h"

namespace dtrain::loop {
namespace {

struct EventFd {
  int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ~EventFd() { ::close(fd); }
  void raise() { ASSERT_EQ(::eventfd_write(fd, 1), 0); }
  void clear() {
    eventfd_t value = 0;
    ::eventfd_read(fd, &value);
  }
};

TEST(Loop, CallsTheReadyOnesOnce) {
  auto loop = Loop::open();
  ASSERT_TRUE(loop);
  EventFd a, b;
  int a_calls = 0, b_calls = 0;
  ASSERT_TRUE((*loop)->watch(a.fd, EPOLLIN, [&](std::uint32_t) {
    ++a_calls;
    a.clear();
  }));
  ASSERT_TRUE((*loop)->watch(b.fd, EPOLLIN, [&](std::uint32_t) { ++b_calls; }));
  a.raise();
  ASSERT_TRUE((*loop)->turn(kNever));
  EXPECT_EQ(a_calls, 1);
  EXPECT_EQ(b_calls, 0);
}

TEST(Loop, LeftOverWorkComesAgain) {
  auto loop = Loop::open();
  EventFd a;
  int calls = 0;
  ASSERT_TRUE((*loop)->watch(a.fd, EPOLLIN, [&](std::uint32_t) { ++calls; }));
  a.raise();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*loop)->turn(kNever));
  EXPECT_EQ(calls, 3);
}

TEST(Loop, DeadlineEndsTheWait) {
  auto loop = Loop::open();
  const Instant deadline = read_clocks().boot + 3ms;
  // A turn may end early (a signal), never for good: the owner asks again.
  while ((*loop)->now().boot < deadline) ASSERT_TRUE((*loop)->turn(deadline));
  EXPECT_GE((*loop)->now().boot, deadline);
  ASSERT_TRUE((*loop)->turn(Instant{}));  // long past: does not wait
}

TEST(Loop, UnwatchInsideACallbackSilencesTheOther) {
  auto loop = Loop::open();
  EventFd a, b;
  int calls = 0;
  const auto silence = [&](int other) {
    return [&, other](std::uint32_t) {
      ++calls;
      (*loop)->unwatch(other);
    };
  };
  ASSERT_TRUE((*loop)->watch(a.fd, EPOLLIN, silence(b.fd)));
  ASSERT_TRUE((*loop)->watch(b.fd, EPOLLIN, silence(a.fd)));
  a.raise();
  b.raise();
  ASSERT_TRUE((*loop)->turn(kNever));
  EXPECT_EQ(calls, 1);
}

TEST(Loop, AReusedDescriptorIsAnotherWatch) {
  auto loop = Loop::open();
  EventFd a, b;
  int old_calls = 0, new_calls = 0;
  ASSERT_TRUE((*loop)->watch(a.fd, EPOLLIN, [&](std::uint32_t) {
    // Both are ready in this turn; b's watch is replaced, so that its ready mark of this turn is stale.
    (*loop)->unwatch(b.fd);
    ASSERT_TRUE((*loop)->watch(b.fd, EPOLLIN, [&](std::uint32_t) { ++new_calls; }));
    (*loop)->unwatch(a.fd);
  }));
  ASSERT_TRUE((*loop)->watch(b.fd, EPOLLIN, [&](std::uint32_t) {
    ++old_calls;
    b.clear();
  }));
  a.raise();
  b.raise();
  ASSERT_TRUE((*loop)->turn(kNever));
  EXPECT_EQ(new_calls, 0);
  if (old_calls == 0) {
    ASSERT_TRUE((*loop)->turn(kNever));
    EXPECT_EQ(new_calls, 1);
  }
}

TEST(Loop, WatchingNonsenseFails) {
  auto loop = Loop::open();
  EXPECT_FALSE((*loop)->watch(-1, EPOLLIN, [](std::uint32_t) {}));
}

TEST(Signals, ArriveThroughTheLoop) {
  auto loop = Loop::open();
  auto signals = Signals::open({SIGUSR2});
  ASSERT_TRUE(signals);
  int seen = 0;
  ASSERT_TRUE((*loop)->watch(signals->fd(), EPOLLIN, [&](std::uint32_t) {
    while (const auto signal = signals->next()) seen = signal->number;
  }));
  ASSERT_EQ(::raise(SIGUSR2), 0);
  ASSERT_TRUE((*loop)->turn(kNever));
  EXPECT_EQ(seen, SIGUSR2);
  EXPECT_FALSE(signals->next());
}

}  // namespace
}  // namespace dtrain::loop
