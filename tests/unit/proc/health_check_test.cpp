// The health check's program, with real children.
#include "agent/proc/health_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/proc/log_files.h"
#include "tests/unit/proc/processes.h"

namespace dtrain::proc {
namespace {

using testing::dies;
using ::testing::HasSubstr;
using testing::ScratchDir;
using testing::written_pid;

class HealthCheckTest : public ::testing::Test {
 protected:
  HealthCheckTest() : check_(std::move(*HealthCheck::open())) {}

  static Instant now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }
  void runs(std::vector<std::string> command, Duration every = 1h, Duration timeout = 20s) {
    check_->configure(now(), {std::move(command), every, timeout, "n1"});
  }
  void runs_shell(const std::string& script, Duration every = 1h, Duration timeout = 20s) { runs({"sh", "-c", script}, every, timeout); }
  // Turns of a loop until so many runs were told of, or for that long.
  std::vector<node::HostCheck> told(std::size_t count, Duration at_most = 20s) {
    std::vector<node::HostCheck> all;
    EventSink sink = [&](node::Event event) { all.push_back(std::get<node::HostChecked>(std::move(event)).check); };
    const Instant end = now() + at_most;
    for (Instant at = now(); all.size() < count && at < end; at = now()) {
      const Duration wait = std::clamp<Duration>(std::min(check_->deadline(), end) - at, 0ns, 1s);
      pollfd ready{check_->fd(), POLLIN, 0};
      ::poll(&ready, 1, static_cast<int>(wait / 1ms) + 1);
      check_->dispatch(now(), sink);
      ++turns_;
    }
    return all;
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::ifstream file(top_ / name);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }

  ScratchDir top_;
  std::unique_ptr<HealthCheck> check_;
  int turns_ = 0;
};

TEST_F(HealthCheckTest, TellsCodeAndOutputOfBothStreamsInOrder) {
  runs_shell("echo one; echo two >&2; echo \"$DTRAIN_NODE $(pwd) ${HOME-unset} $LC_ALL\"; exit 3");
  const auto seen = told(1);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].code, 3);
  EXPECT_EQ(seen[0].cause, "");
  EXPECT_EQ(seen[0].output, "one\ntwo\nn1 / unset C.UTF-8\n");
  EXPECT_FALSE(seen[0].passed());
}

TEST_F(HealthCheckTest, RunsAgainAndNeverTwoAtATime) {
  runs_shell("echo begin >> " + (top_ / "runs") + "; sleep 0.1; echo end >> " + (top_ / "runs"), 1ms);
  EXPECT_EQ(told(3).size(), 3u);
  const auto seen = lines("runs");
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i % 2 == 0 ? "begin" : "end") << i;
  EXPECT_LT(turns_, 100) << "waits without turning";
}

TEST_F(HealthCheckTest, OneThatHangsIsKilledWithItsSessionAndTold) {
  runs_shell("echo looking; sleep 1000000 & echo $! > " + (top_ / "pid") + "; wait", 100ms, 300ms);
  const Instant begun = now();
  auto seen = told(1);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_LT(now() - begun, 10s);
  EXPECT_EQ(seen[0].cause, "did not end within 300 ms, and was killed");
  EXPECT_EQ(seen[0].output, "looking\n");
  EXPECT_FALSE(seen[0].passed());
  ASSERT_TRUE(dies(written_pid(top_ / "pid"))) << "it lives on";
  // And it is tried again, which is told as what it is.
  seen = told(1);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_THAT(seen[0].cause, HasSubstr("did not end within"));
}

TEST_F(HealthCheckTest, WhatCannotBeExecutedSaysSo) {
  runs({"/nowhere/check"});
  const auto seen = told(1);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].code, 127);
  EXPECT_EQ(seen[0].output, "could not execute /nowhere/check: No such file or directory");
}

TEST_F(HealthCheckTest, OneWithMuchToSayEndsAndItsFirstBytesAreKept) {
  runs_shell("head -c 3000000 /dev/zero | tr '\\0' x");
  const auto seen = told(1);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].code, 0);
  EXPECT_EQ(seen[0].output, std::string(node::kHealthOutputBytes, 'x'));
}

TEST_F(HealthCheckTest, AnotherCommandTakesTheirPlaceAtOnceAndNoneEndsThem) {
  runs_shell("sleep 1000000");
  EXPECT_EQ(told(1, 300ms).size(), 0u);
  runs_shell("echo new");
  const auto seen = told(1);
  ASSERT_EQ(seen.size(), 1u) << "the killed one is not told of";
  EXPECT_EQ(seen[0].output, "new\n");
  runs_shell("echo new");  // the same again: nothing
  EXPECT_EQ(told(1, 300ms).size(), 0u);
  runs_shell("sleep 1000000");
  told(1, 300ms);
  runs({});
  EXPECT_EQ(told(1, 2s).size(), 0u);
  EXPECT_EQ(check_->deadline(), kNever);
}

}  // namespace
}  // namespace dtrain::proc
