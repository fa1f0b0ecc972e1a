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
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/proc/device_gate.h"
#include "common/base/limits.h"
#include "common/job/container_engine.h"
#include "tests/unit/proc/log_files.h"
#include "tests/unit/proc/processes.h"

namespace dtrain::proc {
namespace {

using testing::dies;
using ::testing::ElementsAre;
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
    EventSink sink = [&](node::Event event) {
      if (auto* told = std::get_if<node::HookProgress>(&event)) told_.push_back({now(), told->line});
      else all.push_back(std::get<node::HookEnded>(std::move(event)));
    };
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

  void runs_engine(std::vector<std::string> command) {
    node::RunHook effect;
    effect.token = ++token_;
    effect.command = std::move(command);
    effect.user = task::User{"", ::geteuid()};
    effect.of_images = node::KeepFree{};
    hooks_->run(now(), std::move(effect));
  }
  void tells(std::size_t count) {
    EventSink sink = [&](node::Event event) { told_.push_back({now(), std::get<node::HookProgress>(event).line}); };
    for (const Instant end = now() + 20s; told_.size() < count && now() < end; ::usleep(1000)) hooks_->dispatch(now(), sink);
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> texts;
    for (const auto& [at, line] : told_) texts.push_back(line);
    return texts;
  }
  // What stands for an engine's program.
  std::string program(const std::string& script) {
    const std::string path = top_ / "program";
    std::ofstream(path) << "#!/bin/sh\n" << script;
    ::chmod(path.c_str(), 0755);
    return path;
  }

  ScratchDir top_;
  std::vector<std::pair<Instant, std::string>> told_;
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

// Whole lines, the newest of each time, printable and short; of all other hooks none.
TEST_F(HookRunnerTest, OfTheEnginesCommandsStdoutIsHandedOn) {
  runs_engine({"sh", "-c",
               "w() { while [ ! -e \"$1\" ]; do sleep 0.02; done; }; printf 'one\\n'; w \"$1/a\"; printf 'two\\nthree\\n'; "
               "head -c 100000 /dev/zero | tr '\\0' x; printf '\\n\\nunfinished'; w \"$1/b\"; printf '\\nth\\033\\303ree\\r'; w \"$1/c\"",
               "sh", top_.path()});
  tells(1);
  for (const char* gate : {"a", "b"}) {
    std::ofstream(top_ / gate) << "";
    tells(told_.size() + 1);
  }
  ASSERT_THAT(lines(), ElementsAre("one", std::string(kHookLineBytes, 'x'), "th  ree"));
  // The runner counts from the beginning of its turn, the test from when it is told, later in that turn.
  for (std::size_t i = 1; i < told_.size(); ++i) EXPECT_GE(told_[i].first - told_[i - 1].first, kHookLineEvery - kHookLineEvery / 10);
  std::ofstream(top_ / "c") << "";
  EXPECT_EQ(ended(1).at(0).exit.code, 0);
  runs_shell("echo unheard");
  ended(1);
  EXPECT_THAT(told_, SizeIs(3));
}

// podman puts layers into TMPDIR, and a killed one leaves them there.
TEST_F(HookRunnerTest, APullOfPodmanCountsWhatHasArrived) {
  const std::string podman =
      program("case \"$*\" in *info*) echo " + (top_ / "storage") + ";; *pull*) head -c 300000 /dev/zero >$TMPDIR/layer; echo $TMPDIR >" +
              (top_ / "place") + "; sleep 3; echo why >&2; exit 7;; esac\n");
  for (const char* left : {"dtrain-dead", "other"}) std::filesystem::create_directories(top_ / "storage/tmp/" + left);
  runs_engine(job::find_engine("podman")->pull(podman, "a/b"));
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].exit.code, 7);
  EXPECT_EQ(seen[0].exit.stderr_tail, "why\n");
  ASSERT_FALSE(told_.empty());
  const int kib = std::stoi(lines().back());
  EXPECT_GE(kib, 293);
  EXPECT_LT(kib, 400);
  EXPECT_THAT(text("place"), HasSubstr(top_ / "storage/tmp/dtrain-"));
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(top_ / "storage/tmp")) left.push_back(entry.path().filename());
  EXPECT_THAT(left, ElementsAre("other")) << "what is somebody else's stays";
}

// The pieces of a pull that runs are not taken for those of a dead one.
TEST_F(HookRunnerTest, PullsOfPodmanLeaveEachOtherAlone) {
  const std::string podman =
      program("case \"$*\" in *info*) echo " + (top_ / "storage") + ";; *first*) echo here >$TMPDIR/layer; echo $TMPDIR >" +
              (top_ / "place") + "; while [ ! -e " + (top_ / "go") + " ]; do sleep 0.05; done; exec cat $TMPDIR/layer >&2;; esac\n");
  runs_engine(job::find_engine("podman")->pull(podman, "first"));
  for (const Instant end = now() + 20s; text("place") == "none" && now() < end; ::usleep(1000)) {
  }
  runs_engine(job::find_engine("podman")->pull(podman, "second"));
  EXPECT_EQ(ended(1).at(0).token, token_);
  std::ofstream(top_ / "go") << "";
  EXPECT_EQ(ended(1).at(0).exit.stderr_tail, "here\n");
}

// enroot puts layers into a cache that stays: what was there before does not count.
TEST_F(HookRunnerTest, APullOfEnrootCountsWhatHasArrived) {
  const std::string enroot = program("case \"$*\" in info) echo ENROOT_DATA_PATH=" + (top_ / "data") +
                                     "; echo ENROOT_CACHE_PATH=" + (top_ / "cache") + ";; load*) sleep 0.1; head -c 300000 /dev/zero >" +
                                     (top_ / "cache/new") + "; sleep 3; mkdir $ENROOT_DATA_PATH/root;; esac\n");
  for (const char* place : {"data", "cache"}) std::filesystem::create_directories(top_ / place);
  std::ofstream(top_ / "cache/old") << std::string(1 << 20, 'x');
  runs_engine(job::find_engine("enroot")->pull(enroot, "a/b"));
  const auto seen = ended(1);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].exit.code, 0) << seen[0].exit.stderr_tail;
  ASSERT_FALSE(told_.empty());
  const int kib = std::stoi(lines().back());
  EXPECT_GE(kib, 293);
  EXPECT_LT(kib, 400);
  EXPECT_TRUE(std::filesystem::exists(top_ / "data/a+b"));
  EXPECT_FALSE(std::filesystem::exists(top_ / "data/.pull+a+b"));
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
