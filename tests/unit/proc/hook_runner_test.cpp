// The notify commands of jobs, with real children.
#include "agent/proc/hook_runner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/proc/device_gate.h"
#include "common/base/limits.h"
#include "tests/unit/proc/log_files.h"
#include "tests/unit/proc/processes.h"

namespace dtrain::proc {
namespace {

using testing::dies;
using ::testing::HasSubstr;
using testing::ScratchDir;
using ::testing::SizeIs;
using testing::written_pid;

class HookRunnerTest : public ::testing::Test {
 protected:
  HookRunnerTest() : hooks_(std::move(*HookRunner::open())) {}

  static Instant now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }
  void runs(std::vector<std::string> command) {
    node::RunHook effect;
    effect.token = ++token_;
    effect.command = std::move(command);
    effect.env = {{"PATH", "/usr/bin:/bin"}, {"STATE", "Failed"}};
    effect.user = task::User{"", ::geteuid()};
    hooks_->run(now(), std::move(effect));
  }
  void runs_of(const task::User& user, JobId job, const std::string& script) {
    node::RunHook effect;
    effect.token = ++token_;
    effect.command = {"sh", "-c", script};
    effect.env = {{"PATH", "/usr/bin:/bin"}};
    effect.user = user;
    effect.job = job;
    hooks_->run(now(), std::move(effect));
  }
  void runs_shell(const std::string& script) { runs({"sh", "-c", script}); }
  std::vector<node::HookEnded> ended(std::size_t count) {
    std::vector<node::HookEnded> all;
    EventSink sink = [&](node::Event event) { all.push_back(std::get<node::HookEnded>(std::move(event))); };
    const Instant end = now() + 20s;
    for (Instant at = now(); all.size() < count && at < end; at = now()) {
      const Duration wait = std::clamp<Duration>(std::min(hooks_->deadline(), end) - at, 0ns, 1s);
      pollfd ready{hooks_->fd(), POLLIN, 0};
      ::poll(&ready, 1, static_cast<int>(wait / 1ms) + 1);
      hooks_->dispatch(now(), sink);
    }
    return all;
  }
  std::string text(const std::string& name) const { return read_small_file(top_ / name).value_or("none"); }

  ScratchDir top_;
  std::unique_ptr<HookRunner> hooks_;
  std::uint64_t token_ = 0;
};

TEST_F(HookRunnerTest, TellsCodeAndTheEndOfItsErrors) {
  runs_shell("cat > " + (top_ / "input") + "; echo unheard; pwd > " + (top_ / "told") + "; echo \"$STATE ${HOME-unset}\" >> " +
             (top_ / "told") + "; echo why >&2; exit 3");
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].token, token_);
  EXPECT_EQ(seen[0].exit.code, 3);
  EXPECT_EQ(seen[0].exit.cause, "");
  EXPECT_EQ(seen[0].exit.stderr_tail, "why\n");
  EXPECT_EQ(text("input"), "");
  EXPECT_EQ(text("told"), "/\nFailed unset\n");
  runs_shell("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo last >&2");
  const std::string tail = ended(1).at(0).exit.stderr_tail;
  EXPECT_EQ(tail, std::string(limits::kStderrTailBytes - 5, 'x') + "last\n");
}

TEST_F(HookRunnerTest, OneAloneIsEndedByItsToken) {
  runs_shell("exec sleep 1000000");
  const std::uint64_t first = token_;
  runs_shell("exec sleep 1000000");
  hooks_->end(0, first);
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].token, first);
  EXPECT_EQ(seen[0].exit.signal, SIGKILL);
}

TEST_F(HookRunnerTest, APullEndsWhenTheDiskIsFull) {
  node::RunHook effect;
  effect.token = ++token_;
  effect.command = {"sh", "-c", "test \"$HOME\" && exec sleep 1000000"};
  effect.user = task::User{"", ::geteuid()};
  effect.of_images = node::KeepFree{0, std::uint64_t{1} << 62};  // more than any disk has
  hooks_->run(now(), std::move(effect));
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_THAT(seen[0].exit.cause, HasSubstr("has less free than storage.minFree wants"));
  EXPECT_FALSE(seen[0].timed_out);
}

TEST_F(HookRunnerTest, WhatCannotBeExecutedSaysSo) {
  runs({"/nowhere/hook"});
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].exit.code, 127);
  EXPECT_EQ(seen[0].exit.stderr_tail, "could not execute /nowhere/hook: No such file or directory");
}

// Also none that are not closed by exec: they may belong to a library.
TEST_F(HookRunnerTest, HasNoDescriptorsOfTheAgent) {
  const UniqueFd kept(::fcntl(STDIN_FILENO, F_DUPFD, 100));  // none that a shell opens itself
  ASSERT_TRUE(kept);
  runs_shell("test -e /proc/$$/fd/2 && test ! -e /proc/$$/fd/" + std::to_string(kept.get()));
  EXPECT_EQ(ended(1).at(0).exit.code, 0);
}

TEST_F(HookRunnerTest, OneThatHangsIsKilledWithWhatItBegan) {
  hooks_ = std::move(*HookRunner::open(300ms));
  runs_shell("echo trying >&2; sleep 1000000 & echo $! > " + (top_ / "pid") + "; wait");
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].exit.signal, SIGKILL);
  EXPECT_TRUE(seen[0].timed_out);
  EXPECT_EQ(seen[0].exit.stderr_tail, "trying\n");
  EXPECT_TRUE(dies(written_pid(top_ / "pid")));
}

TEST_F(HookRunnerTest, WhatOneLeavesIsKilled) {
  runs_shell("sleep 1000000 & echo $! > " + (top_ / "pid"));
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].exit.code, 0);
  EXPECT_TRUE(dies(written_pid(top_ / "pid")));
}

TEST_F(HookRunnerTest, EndsWithItsRunner) {
  runs_shell("sleep 1000000 & echo $! > " + (top_ / "pid") + "; wait");
  const pid_t left = written_pid(top_ / "pid");
  ASSERT_GT(left, 0);
  hooks_.reset();
  EXPECT_TRUE(dies(left));
  for (int i = 0; i < 50; ++i) {  // also one that has not come to a session of its own
    hooks_ = std::move(*HookRunner::open());
    runs({"sleep", "1000000"});
    hooks_.reset();
  }
}

TEST_F(HookRunnerTest, EndsWithItsJob) {
  const task::User self{"", ::geteuid()};
  for (std::size_t i = 0; i < kHooksOfUser; ++i) runs_of(self, 7, "sleep 1000000");
  runs_of(self, 8, "exit 5");  // waits
  runs_of(self, 7, "exit 6");  // likewise
  hooks_->end(7);
  const auto seen = ended(kHooksOfUser + 2);
  ASSERT_THAT(seen, SizeIs(kHooksOfUser + 2));
  for (const node::HookEnded& end : seen) {
    const std::string how = std::to_string(end.exit.signal) + " " + std::to_string(end.exit.code) + " " + end.exit.cause;
    EXPECT_EQ(how, end.token == kHooksOfUser + 1 ? "0 5 " : end.token == kHooksOfUser + 2 ? "0 127 its job was deleted" : "9 0 ");
  }
}

TEST_F(HookRunnerTest, OneUserHasNotAllPlaces) {
  if (::geteuid() != 0) return;  // without root there is only one user
  const task::User self{"", ::geteuid()};
  for (std::size_t i = 0; i < kHooksAtOnce; ++i) runs_of(self, 7, "sleep 1000000");
  runs_of({"nobody", ::getpwnam("nobody")->pw_uid}, 8, "exit 5");
  EXPECT_EQ(ended(1).at(0).exit.code, 5);
  for (std::size_t i = kHooksAtOnce; i < kHooksOfUser + kHooksOfUserWaiting; ++i) runs_of(self, 7, "exit 0");
  EXPECT_EQ(hooks_->deadline() == Instant{}, false) << "all of these wait";
  runs_of(self, 7, "exit 0");
  EXPECT_EQ(ended(1).at(0).exit.cause, "too many hooks of this user wait already");
}

// Where control groups are there to be had.
class HookGroupsTest : public HookRunnerTest {
 protected:
  HookGroupsTest() {
    Cgroups groups = Cgroups::open("", "dtrain-test-hooks-" + std::to_string(::getpid()));
    there_ = !groups.v2().empty() && ::geteuid() == 0;
    path_ = groups.v2();
    if (there_) closed_ = close_devices(path_);
    hooks_ = std::move(*HookRunner::open(kNotifyTime, std::move(groups)));
  }
  bool there_ = false;
  std::string path_;
  Status closed_;
};

TEST_F(HookGroupsTest, WhatLeavesItsSessionIsKilledAsWell) {
  if (!there_) return;
  runs_shell("setsid sh -c 'echo $$ > " + (top_ / "pid") + "; exec sleep 1000000' & while [ ! -s " + (top_ / "pid") + " ]; do :; done");
  EXPECT_EQ(ended(1).at(0).exit.code, 0);
  EXPECT_TRUE(dies(written_pid(top_ / "pid")));
  hooks_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nothing is left of its group";
}

TEST_F(HookGroupsTest, WhatAKilledAgentLeftEndsWithTheNextStart) {
  if (!there_) return;
  const pid_t agent = ::fork();
  ASSERT_GE(agent, 0);
  if (agent == 0) {
    runs_shell("setsid sh -c 'echo $$ > " + (top_ / "pid") + "; exec sleep 1000000' & sleep 1000000");
    written_pid(top_ / "pid");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(agent, nullptr, 0), agent);
  const pid_t left = written_pid(top_ / "pid");
  ASSERT_EQ(::kill(left, 0), 0);
  hooks_ = std::move(*HookRunner::open(kNotifyTime, Cgroups::open("", path_.substr(path_.rfind('/') + 1))));
  EXPECT_TRUE(dies(left));
}

TEST_F(HookGroupsTest, OpensNoDevices) {
  if (!there_) return;
  ASSERT_TRUE(closed_) << closed_.error().text();
  const std::string device = top_ / "device";
  ASSERT_EQ(::mknod(device.c_str(), S_IFCHR | 0666, makedev(10, 229)), 0);  // fuse
  runs_shell("head -c 1 /dev/zero > /dev/null || exit 1; head -c 1 /dev/urandom > /dev/null || exit 2; exec 3< " + device);
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_THAT(seen[0].exit.stderr_tail, HasSubstr("Operation not permitted")) << seen[0].exit.code;
}

TEST_F(HookRunnerTest, DiesWithAnAgentThatIsKilled) {
  const pid_t agent = ::fork();
  ASSERT_GE(agent, 0);
  if (agent == 0) {
    runs_shell("echo $$ > " + (top_ / "pid") + "; exec sleep 1000000");
    written_pid(top_ / "pid");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(agent, nullptr, 0), agent);
  const pid_t hook = written_pid(top_ / "pid");
  ASSERT_GT(hook, 0);
  EXPECT_TRUE(dies(hook));
}

}  // namespace
}  // namespace dtrain::proc
