// Hooks of the host itself, which the agent runs as its own user and with a time limit of their own; with real children.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "agent/proc/hook_runner.h"
#include "tests/unit/proc/log_files.h"

namespace dtrain::proc {
namespace {

using ::testing::HasSubstr;
using testing::ScratchDir;

class HostHookTest : public ::testing::Test {
 protected:
  HostHookTest() : hooks_(std::move(*HookRunner::open())) {}

  static Instant now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }
  void run(const std::string& script, Duration limit = 20s) {
    hooks_->run(now(), {1, {"sh", "-c", script}, {{"DTRAIN_HOOK", "prolog"}, {"PATH", "/usr/bin:/bin"}}, std::nullopt, limit});
  }
  node::HookEnded ended() {
    std::optional<node::HookEnded> seen;
    EventSink sink = [&](node::Event event) { seen = std::get<node::HookEnded>(std::move(event)); };
    const Instant end = now() + 20s;
    for (Instant at = now(); !seen && at < end; at = now()) {
      const Duration wait = std::clamp<Duration>(std::min(hooks_->deadline(), end) - at, 0ns, 1s);
      pollfd ready{hooks_->fd(), POLLIN, 0};
      ::poll(&ready, 1, static_cast<int>(wait / 1ms) + 1);
      hooks_->dispatch(now(), sink);
    }
    return seen.value_or(node::HookEnded{});
  }
  std::string line(const std::string& name) const {
    std::ifstream file(top_ / name);
    std::string text;
    std::getline(file, text);
    return text;
  }

  ScratchDir top_;
  std::unique_ptr<HookRunner> hooks_;
};

TEST_F(HostHookTest, RunsAsTheAgentsOwnUserInTheGivenEnvironmentAlone) {
  ::setenv("LEAKS", "1", 1);
  run("echo \"$(id -u) $(pwd) $DTRAIN_HOOK ${LEAKS-unset} ${HOME-unset}\" > " + (top_ / "said"));
  EXPECT_TRUE(ended().exit.success());
  EXPECT_EQ(line("said"), std::to_string(::geteuid()) + " / prolog unset unset");
}

TEST_F(HostHookTest, TellsItsCodeAndWhatItWroteToStderr) {
  run("echo no scratch >&2; exit 3");
  const task::Exit exit = ended().exit;
  EXPECT_EQ(exit.code, 3);
  EXPECT_EQ(exit.stderr_tail, "no scratch\n");
  EXPECT_EQ(exit.cause, "");
}

TEST_F(HostHookTest, WhatDoesNotExistEndsWith127) {
  hooks_->run(now(), {1, {"/no/such/prolog"}, {}, std::nullopt, 20s});
  const task::Exit exit = ended().exit;
  EXPECT_EQ(exit.code, 127);
  EXPECT_THAT(exit.stderr_tail, HasSubstr("could not execute /no/such/prolog: No such file or directory"));
}

TEST_F(HostHookTest, IsKilledWithItsSessionAfterItsOwnLimit) {
  run("sleep 1000000 & echo $! > " + (top_ / "pid") + "; wait", 300ms);
  const node::HookEnded end = ended();
  EXPECT_EQ(end.exit.signal, SIGKILL);
  EXPECT_TRUE(end.timed_out);
  const pid_t child = std::stoi(line("pid"));
  for (int i = 0; i < 200 && ::kill(child, 0) == 0; ++i) ::usleep(10'000);
  EXPECT_NE(::kill(child, 0), 0);
}

}  // namespace
}  // namespace dtrain::proc
