#include "agent/proc/exec_session.h"

#include <gtest/gtest.h>
#include <linux/sched.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>

#include "tests/unit/proc/log_files.h"
#include "tests/unit/proc/outlets.h"

namespace dtrain::proc {
namespace {

using testing::KeepingOutlet;
using testing::ScratchDir;

constexpr node::ConnectionId kConnection = 7;
constexpr std::uint64_t kRequest = 3;

class ExecSessionTest : public ::testing::Test {
 protected:
  ExecSessionTest() {
    ::signal(SIGPIPE, SIG_IGN);
    const passwd* record = ::getpwuid(::geteuid());
    place_.user = {record != nullptr ? record->pw_name : "", ::geteuid()};
    place_.work_dir = dir_.path();
    place_.env = {{"PATH", "/usr/bin:/bin"}, {"DTRAIN_TASK", "worker-1"}};
  }

  void open(std::vector<std::string> command, bool terminal = false) {
    wire::ExecRequest request;
    request.command = std::move(command);
    request.terminal = terminal;
    request.rows = 33;
    request.columns = 111;
    request.term = "dumb";
    sessions_.open(kConnection, kRequest, wire::encode(request), place_);
  }
  void shell(const std::string& script, bool terminal = false) { open({"sh", "-c", script}, terminal); }
  void send(wire::ExecInput input) {
    input.exec = kRequest;
    sessions_.input(now(), kConnection, input);
  }

  static Instant now() { return Instant(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch())); }
  // Dispatches until the condition holds.
  bool run_until(const std::function<bool()>& condition) {
    const Instant patience = now() + 60s;
    while (!condition()) {
      if (now() >= patience) return false;
      const Instant until = std::min(sessions_.deadline(), patience);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now()).count();
      pollfd ready{sessions_.fd(), POLLIN, 0};
      // Conditions may also be about other processes, which tell nobody: look again after a while.
      constexpr long kLookAgainMs = 50;
      ::poll(&ready, 1, static_cast<int>(std::clamp<long>(left, 0, kLookAgainMs)));
      sessions_.dispatch(now(), outlet_);
    }
    return true;
  }
  bool over() const { return !outlet_.messages.empty() && outlet_.messages.back().second.last; }
  bool finish() {
    return run_until([this] { return over(); });
  }

  std::string text(bool is_stderr = false) const {
    std::string all;
    for (const auto& [connection, message] : outlet_.messages) {
      EXPECT_EQ(connection, kConnection);
      EXPECT_EQ(message.request, kRequest);
      if (message.type != wire::MessageType::exec_output) continue;
      const auto output = wire::decode<wire::ExecOutput>(message.payload);
      EXPECT_TRUE(output.has_value());
      if (output->is_stderr == is_stderr) all += output->bytes;
    }
    return all;
  }
  wire::ExitView exit() const {
    const auto output = wire::decode<wire::ExecOutput>(outlet_.messages.back().second.payload);
    return output && output->exit ? *output->exit : wire::ExitView{};
  }
  std::string error() const {
    if (outlet_.messages.empty() || outlet_.messages.back().second.type != wire::MessageType::error) return "";
    return wire::decode<wire::ErrorReply>(outlet_.messages.back().second.payload)->errors.front().message;
  }
  // A process writes its number there.
  int read_pid(const std::string& name) {
    int pid = 0;
    run_until([&] { return static_cast<bool>(std::ifstream(dir_ / name) >> pid); });
    return pid;
  }
  static bool gone(int pid) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    const std::size_t state = text.rfind(") ");
    return text.empty() || text.compare(state + 2, 1, "Z") == 0;  // a zombie waits for whoever reaps here
  }

  ScratchDir dir_;
  ExecPlace place_;
  ExecSessions sessions_ = std::move(*ExecSessions::open());
  KeepingOutlet outlet_;
};

TEST_F(ExecSessionTest, RunsInDirectoryAndEnvironment) {
  shell("echo $DTRAIN_TASK; pwd; env | wc -l; echo no >&2; exit 3");
  ASSERT_TRUE(finish());
  EXPECT_TRUE(text().starts_with("worker-1\n" + dir_.path() + "\n")) << text();
  EXPECT_EQ(text(true), "no\n");
  EXPECT_EQ(exit().code, 3);
  EXPECT_EQ(sessions_.size(), 0u);
}

TEST_F(ExecSessionTest, ReportsTheSignal) {
  shell("kill -KILL $$");
  ASSERT_TRUE(finish());
  EXPECT_EQ(exit().signal, "SIGKILL");
}

TEST_F(ExecSessionTest, WhatCannotBeExecutedIsAnError) {
  open({"no-such-command"});
  ASSERT_TRUE(finish());
  EXPECT_EQ(error(), "could not execute no-such-command: No such file or directory");
  outlet_.messages.clear();
  place_.work_dir = "/no/such/dir";
  open({"true"});
  ASSERT_TRUE(finish());
  EXPECT_EQ(error(), "could not enter the task's working directory: No such file or directory");
  outlet_.messages.clear();
  open({});
  ASSERT_TRUE(finish());
  EXPECT_FALSE(error().empty());
}

TEST_F(ExecSessionTest, PassesInputAndItsEnd) {
  open({"cat"});
  std::string sent;
  for (int i = 0; i < 20'000; ++i) sent += "line " + std::to_string(i) + "\n";
  send({.bytes = sent});
  send({.bytes = "end\n", .end = true});
  ASSERT_TRUE(finish());
  EXPECT_EQ(text(), sent + "end\n");
  EXPECT_EQ(exit().code, 0);
}

TEST_F(ExecSessionTest, InputThatIsNeverReadIsBounded) {
  open({"sleep", "1000"});
  for (std::size_t sent = 0; sent <= kExecInputBytes + (1 << 20); sent += 1 << 20) send({.bytes = std::string(1 << 20, 'x')});
  ASSERT_TRUE(finish());
  EXPECT_NE(error().find("could not pass input to sleep"), std::string::npos);
  EXPECT_TRUE(run_until([&] { return sessions_.deadline() == kNever; }));
}

TEST_F(ExecSessionTest, ATerminalIsOne) {
  shell("test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM; read line; echo got $line", true);
  ASSERT_TRUE(run_until([&] { return text().find("dumb") != std::string::npos; }));
  EXPECT_NE(text().find("33 111"), std::string::npos) << text();
  send({.bytes = "hello\n"});
  ASSERT_TRUE(finish());
  EXPECT_NE(text().find("got hello"), std::string::npos) << text();
  EXPECT_EQ(exit().code, 0);
}

TEST_F(ExecSessionTest, ATerminalChangesSizeAndPassesInterrupts) {
  shell("trap 'stty size; echo changed' WINCH; echo ready; while true; do sleep 0.05; done", true);
  ASSERT_TRUE(run_until([&] { return text().find("ready") != std::string::npos; }));
  send({.bytes = "", .rows = 50, .columns = 132});
  ASSERT_TRUE(run_until([&] { return text().find("changed") != std::string::npos; }));
  EXPECT_NE(text().find("50 132"), std::string::npos) << text();
  send({.bytes = "\x03"});
  ASSERT_TRUE(finish());
  EXPECT_EQ(exit().signal, "SIGINT");
}

TEST_F(ExecSessionTest, SignalsReachTheGroup) {
  shell("trap 'echo term; exit 5' TERM; echo ready; while true; do sleep 0.05; done");
  ASSERT_TRUE(run_until([&] { return text().find("ready") != std::string::npos; }));
  send({.bytes = "", .signal = SIGTERM});
  ASSERT_TRUE(finish());
  EXPECT_NE(text().find("term"), std::string::npos);
  EXPECT_EQ(exit().code, 5);
}

// Makes a group of its own the terminal's, says its number, and waits for its end.
constexpr const char* kForeground =
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n"
    "child = os.fork()\n"
    "if child == 0:\n"
    "    os.setpgid(0, 0)\n"
    "    os.tcsetpgrp(0, os.getpid())\n"
    "    if len(sys.argv) > 1: print('group %d.' % os.getpid(), flush=True)\n"
    "    time.sleep(1000 if len(sys.argv) > 1 else 0)\n"
    "    os._exit(0)\n"
    "status = os.waitpid(child, 0)[1]\n"
    "if len(sys.argv) < 2: print('group %d.' % child, flush=True)\n"
    "else: print('ended by %d.' % os.WTERMSIG(status), flush=True)\n"
    "time.sleep(1000)\n";

TEST_F(ExecSessionTest, ATerminalsSignalReachesTheGroupInFront) {
  open({"/usr/bin/python3", "-u", "-c", kForeground, "stay"}, true);
  ASSERT_TRUE(run_until([&] { return text().find("group ") != std::string::npos; }));
  send({.bytes = "", .signal = SIGUSR1});
  EXPECT_TRUE(run_until([&] { return text().find("ended by " + std::to_string(SIGUSR1) + ".") != std::string::npos; })) << text();
}

// The terminal still has the number of a group that has ended: whoever has it now is none of the session's.
TEST_F(ExecSessionTest, ATerminalsSignalReachesNobodyElse) {
  if (::geteuid() != 0) return;  // a process of that number cannot be made
  open({"/usr/bin/python3", "-u", "-c", kForeground}, true);
  ASSERT_TRUE(run_until([&] { return text().find('.') != std::string::npos; }));
  const pid_t group = static_cast<pid_t>(std::stoi(text().substr(text().find("group ") + 6)));
  ASSERT_GT(group, 1);
  clone_args args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<std::uint64_t>(&group);
  args.set_tid_size = 1;
  const long other = ::syscall(SYS_clone3, &args, sizeof args);
  if (other == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
    ::raise(SIGSTOP);
    ::_exit(7);
  }
  ASSERT_EQ(other, group) << "somebody was faster";
  int status = 0;
  ASSERT_EQ(::waitpid(group, &status, WUNTRACED), group);
  ASSERT_TRUE(WIFSTOPPED(status));
  send({.bytes = "", .signal = SIGTERM});
  ::kill(group, SIGCONT);
  ASSERT_EQ(::waitpid(group, &status, 0), group);
  EXPECT_TRUE(WIFEXITED(status)) << "it was ended by signal " << WTERMSIG(status);
}

TEST_F(ExecSessionTest, OutputWaitsForRoom) {
  outlet_.takes_one_at_a_time = true;
  shell("head -c 1000000 /dev/zero; echo end >&2");
  ASSERT_TRUE(run_until([&] {
    if (over()) return true;
    if (outlet_.room(kConnection) == 0) {
      outlet_.set_room(kStreamMessageBytes);
      sessions_.wake(kConnection);
    }
    return false;
  }));
  EXPECT_EQ(text().size(), 1'000'000u);
  EXPECT_EQ(text(true), "end\n");
}

TEST_F(ExecSessionTest, NothingIsSentWithoutRoom) {
  outlet_.set_room(0);
  shell("echo x; echo $$ > pid");
  const int pid = read_pid("pid");
  ASSERT_GT(pid, 0);
  ASSERT_TRUE(run_until([&] { return gone(pid); }));
  sessions_.dispatch(now(), outlet_);
  EXPECT_TRUE(outlet_.messages.empty());
  EXPECT_EQ(sessions_.deadline(), kNever) << "it waits for room and for nothing else";
  outlet_.set_room(kStreamMessageBytes);
  sessions_.wake(kConnection);
  ASSERT_TRUE(finish());
  EXPECT_EQ(text(), "x\n");
}

TEST_F(ExecSessionTest, AClosedConnectionEndsTheWholeGroup) {
  shell(
      "trap '' HUP; sh -c 'echo $$ > child; trap \"\" HUP; while true; do sleep 0.05; done' & echo $$ > "
      "leader; wait");
  const int child = read_pid("child");
  const int leader = read_pid("leader");
  ASSERT_GT(child, 0);
  ASSERT_GT(leader, 0);
  sessions_.close(now(), kConnection);
  EXPECT_TRUE(run_until([&] { return sessions_.deadline() == kNever && gone(child) && gone(leader); }));
  EXPECT_TRUE(outlet_.messages.empty());
}

TEST_F(ExecSessionTest, WhatTheCommandLeavesBehindIsKilled) {
  shell("sleep 1000 & echo $! > child; exit 0");
  ASSERT_TRUE(finish());
  EXPECT_EQ(exit().code, 0);
  const int child = read_pid("child");
  EXPECT_TRUE(run_until([&] { return gone(child); }));
}

TEST_F(ExecSessionTest, RunsAsTheUserOfTheTask) {
  if (::geteuid() != 0) return;  // without root there is only one user to be
  place_.user = {"nobody", 65534};
  place_.work_dir = "/";
  shell("id -un");
  ASSERT_TRUE(finish());
  EXPECT_EQ(text(), "nobody\n") << error();
}

TEST_F(ExecSessionTest, JoinsTheCgroup) {
  // A directory that looks like one: what is written there is what the kernel would get.
  std::ofstream(dir_ / "cgroup.procs") << "";
  place_.cgroups = {"", dir_ / "missing", dir_.path()};
  open({"true"});
  ASSERT_TRUE(finish());
  std::string joined;
  std::ifstream(dir_ / "cgroup.procs") >> joined;
  EXPECT_EQ(joined, "0");
}

}  // namespace
}  // namespace dtrain::proc
