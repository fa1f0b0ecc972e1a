#include "agent/dtraind/start_backoff.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

namespace dtrain::daemon {
namespace {

class StartBackoffTest : public ::testing::Test {
 protected:
  StartBackoffTest() {
    char name[] = "/tmp/start-backoff-XXXXXX";
    directory = ::mkdtemp(name);
  }
  ~StartBackoffTest() override { std::filesystem::remove_all(directory); }
  std::string directory;
};

TEST_F(StartBackoffTest, FailedStartsInARowWaitEverLongerAndOneThatIsReadyEndsThat) {
  const StartBackoff backoff(directory);
  for (int failed = 0; failed < 12; ++failed) ASSERT_EQ(StartBackoff(directory).begin(), failed);
  backoff.ready();
  EXPECT_EQ(backoff.begin(), 0);
}

TEST_F(StartBackoffTest, ADelayIsShortAtFirstAndNeverLongerThanAMinute) {
  EXPECT_EQ(start_delay(0), 0s);
  EXPECT_EQ(start_delay(kStartsAtOnce - 1), 0s) << "what heals by itself in a moment is not held up";
  EXPECT_EQ(start_delay(kStartsAtOnce), 1s);
  EXPECT_EQ(start_delay(kStartsAtOnce + 2), 4s);
  EXPECT_EQ(start_delay(1'000'000), 60s);
}

TEST_F(StartBackoffTest, WhoeverStopsItMeanwhileBeginsAnew) {
  const StartBackoff backoff(directory);
  for (int i = 0; i < 20; ++i) backoff.begin();
  sigset_t ends, before;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  ASSERT_EQ(::sigprocmask(SIG_BLOCK, &ends, &before), 0);
  ASSERT_EQ(::raise(SIGTERM), 0);  // waits until it is asked for
  EXPECT_FALSE(backoff.wait(20));
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(backoff.begin(), 0);
}

TEST_F(StartBackoffTest, WithoutADirectoryNothingIsCounted) {
  const StartBackoff backoff("");
  backoff.begin();
  EXPECT_EQ(backoff.begin(), 0);
  EXPECT_TRUE(backoff.wait(0));
}

}  // namespace
}  // namespace dtrain::daemon
