// Programs that another task of the job launches in a task: with and without a control group they are a part of it.
#include <gmock/gmock.h>
#include <signal.h>

#include <functional>

#include "agent/proc/exec_session.h"
#include "tests/unit/proc/outlets.h"
#include "tests/unit/proc/shim_world.h"

namespace dtrain::proc {
namespace {

using ::testing::HasSubstr;

constexpr node::ConnectionId kLauncher = 7;
constexpr std::uint64_t kLaunch = 3;

class LaunchedTest : public ShimWorld, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    conformance::DirectWorld::Options options;
    options.cgroups = GetParam();
    use(options);
  }
  void begin(const std::string& script = "exec sleep 1000000") {
    launch(shell(script));
    world_->runner().start(id_, 1);
    ASSERT_TRUE(until<node::AttemptStarted>());
  }
  void run_beside(std::vector<std::string> argv) {
    ExecPlace place;
    place.user.uid = ::geteuid();
    place.run_beside = [this](const Runner::Program& program) { return world_->runner().run_beside(id_, program); };
    wire::ExecRequest request;
    request.command = std::move(argv);
    sessions_.open(kLauncher, kLaunch, wire::encode(request), place);
  }
  void shell_beside(const std::string& script) { run_beside({"sh", "-c", script}); }
  void send(wire::ExecInput input) {
    input.exec = kLaunch;
    sessions_.input(boot_now(), kLauncher, input);
  }
  bool wait_for(const std::function<bool()>& condition) {
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    return world_->pump(sink, [&] {
      sessions_.dispatch(boot_now(), outlet_);
      return condition();
    });
  }
  bool over() const { return !outlet_.messages.empty() && outlet_.messages.back().second.last; }
  std::string text(bool is_stderr = false) const {
    std::string all;
    for (const auto& [connection, message] : outlet_.messages)
      if (const auto output = wire::decode<wire::ExecOutput>(message.payload); output && output->is_stderr == is_stderr)
        all += output->bytes;
    return all;
  }
  wire::ExitView exit() const {
    return wire::decode<wire::ExecOutput>(outlet_.messages.back().second.payload)->exit.value_or(wire::ExitView{});
  }
  std::string error() const { return wire::decode<wire::ErrorReply>(outlet_.messages.back().second.payload)->errors.front().message; }
  // That the program writes.
  int number() {
    EXPECT_TRUE(wait_for([this] { return text().find('\n') != std::string::npos; }));
    return std::atoi(text().c_str());
  }
  static bool alive(int pid) {
    const std::string stat = read_small_file("/proc/" + std::to_string(pid) + "/stat").value_or("");
    return !stat.empty() && stat[stat.rfind(") ") + 2] != 'Z';
  }

  testing::KeepingOutlet outlet_;
  ExecSessions sessions_ = std::move(*ExecSessions::open());
};
INSTANTIATE_TEST_SUITE_P(, LaunchedTest, ::testing::Bool(), [](const auto& with) { return with.param ? "InACgroup" : "WithoutACgroup"; });

TEST_P(LaunchedTest, HasTheTasksSurroundingsAndItsEndComesBack) {
  begin();
  shell_beside("pwd; echo $DTRAIN_ATTEMPT $DTRAIN_TEST_MARK; grep ^Name /proc/$PPID/status; read line; echo got $line >&2; exit 9");
  ASSERT_TRUE(wait_for([this] { return text().find("Name") != std::string::npos; }));
  EXPECT_THAT(text(), HasSubstr("/work\n1 "));
  EXPECT_THAT(text(), HasSubstr(id_.text() + "\nName:\tdtrain-shim\n"));
  wire::ExecInput line;
  line.bytes = "this\n";
  send(line);
  ASSERT_TRUE(wait_for([this] { return over(); }));
  EXPECT_EQ(text(true), "got this\n");
  EXPECT_EQ(exit().code, 9);
  EXPECT_EQ(last<node::AttemptExited>(), nullptr) << "it is no main process";
}

TEST_P(LaunchedTest, WhatItLeavesBehindEndsWithTheTask) {
  begin();
  shell_beside("setsid sleep 1000000 </dev/null >/dev/null 2>&1 & echo $!");
  const int left = number();
  ASSERT_TRUE(wait_for([this] { return over(); }));
  EXPECT_EQ(exit().code, 0);
  EXPECT_TRUE(alive(left)) << "as a daemon it has left its session";
  EXPECT_EQ(world_->runner().task_of(left), id_) << "but not the task";
  world_->runner().kill(id_);
  ASSERT_TRUE(wait_for([this] { return last<node::AttemptExited>() != nullptr; }));
  EXPECT_FALSE(alive(left)) << "nothing is left when the end is reported";
}

TEST_P(LaunchedTest, EndsWithTheTaskThatEndsByItself) {
  begin("while ! test -e stop; do sleep 0.01; done");
  shell_beside("echo $$; exec sleep 1000000");
  const int pid = number();
  std::ofstream(world_->work() + "/stop") << "now";
  ASSERT_TRUE(wait_for([this] { return last<node::AttemptExited>() != nullptr; }));
  EXPECT_FALSE(alive(pid));
  EXPECT_EQ(last<node::AttemptExited>()->exit.code, 0);
  ASSERT_TRUE(wait_for([this] { return over(); }));
  EXPECT_EQ(exit().signal, "SIGKILL");
}

TEST_P(LaunchedTest, HangUpEndsItsWholeSession) {
  begin();
  shell_beside("sleep 1000000 & echo $!; set -m; sh -c 'trap \"\" HUP; echo stubborn $$; sleep 1000000' & wait");
  const int child = number();
  ASSERT_TRUE(wait_for([this] { return text().find("stubborn") != std::string::npos; }));
  const int stubborn = std::atoi(text().substr(text().find("stubborn ") + 9).c_str());
  sessions_.close(boot_now(), kLauncher, kLaunch);
  EXPECT_TRUE(wait_for([&] { return !alive(child) && !alive(stubborn); }));
  EXPECT_EQ(last<node::AttemptExited>(), nullptr);
}

TEST_P(LaunchedTest, WhatFailsLeavesNothingInItsSession) {
  begin();
  shell_beside("sleep 1000000 & echo $!; kill -9 $$");
  const int child = number();
  ASSERT_TRUE(wait_for([this] { return over(); }));
  EXPECT_EQ(exit().signal, "SIGKILL");
  EXPECT_TRUE(wait_for([&] { return !alive(child); }));
}

TEST_P(LaunchedTest, ASignalReachesIt) {
  begin();
  shell_beside("trap 'echo term; exit 3' TERM; echo here; while true; do sleep 0.01; done");
  ASSERT_TRUE(wait_for([this] { return text() == "here\n"; }));
  wire::ExecInput term;
  term.signal = SIGTERM;
  send(term);
  ASSERT_TRUE(wait_for([this] { return over(); }));
  EXPECT_EQ(exit().code, 3);
}

TEST_P(LaunchedTest, AnAgentThatStopsEndsItAndAnAdoptedShimLaunches) {
  begin();
  shell_beside("echo $$; exec sleep 1000000");
  const int pid = number();
  sessions_ = std::move(*ExecSessions::open());
  world_->agent_dies();
  world_->agent_returns();
  for (const task::FoundShim& found : world_->runner().list()) EXPECT_TRUE(found.running);
  EXPECT_TRUE(wait_for([&] { return !alive(pid); }));
  outlet_.messages.clear();
  shell_beside("echo again");
  ASSERT_TRUE(wait_for([this] { return over(); }));
  EXPECT_EQ(text(), "again\n");
}

TEST_P(LaunchedTest, WhatCannotRunIsTold) {
  begin();
  run_beside({"/no/such/program"});
  ASSERT_TRUE(wait_for([this] { return over(); }));
  EXPECT_THAT(error(), HasSubstr("could not execute /no/such/program in the task: No such file"));
  run_beside(std::vector<std::string>(shim::kRunArguments + 1, "x"));
  ASSERT_TRUE(wait_for([this] { return outlet_.messages.size() == 2; }));
  EXPECT_THAT(error(), HasSubstr("more than 1024 arguments"));
  world_->runner().freeze(id_, true);
  ASSERT_TRUE(wait_for([this] { return last<node::FreezeDone>() != nullptr; }));
  shell_beside("true");
  ASSERT_TRUE(wait_for([this] { return outlet_.messages.size() == 3; }));
  EXPECT_THAT(error(), HasSubstr("it stands still"));
  world_->runner().kill(id_);
  ASSERT_TRUE(wait_for([this] { return last<node::AttemptExited>() != nullptr; }));
  shell_beside("true");
  ASSERT_TRUE(wait_for([this] { return outlet_.messages.size() == 4; }));
  EXPECT_THAT(error(), HasSubstr("it does not run"));
}

}  // namespace
}  // namespace dtrain::proc
