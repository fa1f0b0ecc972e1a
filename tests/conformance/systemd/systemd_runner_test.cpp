// The launcher through systemd: the suite of all runners, and what a unit is for. A program of its own, since it starts and stops services:
// run by tests/system/test_systemd_runner.py on a host that is booted for it.
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <gmock/gmock.h>

#include "agent/proc/launch_file.h"
#include "tests/conformance/standby_suite.h"

namespace dtrain::conformance {
namespace {

std::unique_ptr<RunnerWorld> systemd() {
  DirectWorld::Options options;
  options.systemd = true;
  return std::make_unique<DirectWorld>(options);
}

INSTANTIATE_TEST_SUITE_P(Systemd, RunnerSuite, testing::Values(WorldFactory{"systemd", systemd}), world_name);
INSTANTIATE_TEST_SUITE_P(Systemd, StandbySuite, testing::Values(WorldFactory{"systemd", systemd}), world_name);

// ---------------------------------------------------------------- what only a unit does

class SystemdUnit : public testing::Test {
 protected:
  void SetUp() override {
    DirectWorld::Options options;
    options.systemd = true;
    world_ = std::make_unique<DirectWorld>(options);
    (void)world_->runner().list();
  }

  bool pump(const std::function<bool()>& condition) { return world_->pump(sink_, condition); }
  template <class E>
  const E* last() const {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event)
      if (const auto* found = std::get_if<E>(&*event)) return found;
    return nullptr;
  }

  task::ShimSpec shell(const std::string& script) { return world_->command(id_, {"sh", "-c", script}); }
  void launch(const task::ShimSpec& spec) {
    world_->runner().launch(spec);
    ASSERT_TRUE(pump([&] { return last<node::ShimUp>() != nullptr; }));
    ASSERT_TRUE(last<node::ShimUp>()->result) << last<node::ShimUp>()->result.error().text();
  }
  std::int32_t run(const task::ShimSpec& spec) {
    launch(spec);
    world_->runner().start(id_, 1);
    EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>() != nullptr; }));
    return last<node::AttemptStarted>() == nullptr ? 0 : last<node::AttemptStarted>()->pid;
  }
  const task::Exit& exit() {
    EXPECT_TRUE(pump([&] { return last<node::AttemptExited>() != nullptr; }));
    static const task::Exit none;
    return last<node::AttemptExited>() == nullptr ? none : last<node::AttemptExited>()->exit;
  }
  std::string unit() const { return unit_of(id_); }
  std::string unit_of(const AssignmentId& id) const {
    const auto launch = proc::read_launch(world_->directory(id));
    return launch ? launch->cgroup.substr(launch->cgroup.rfind('/') + 1) : "";
  }
  // Output of a command of this host's, without its last newline.
  static std::string says(const std::string& command) {
    std::unique_ptr<FILE, int (*)(FILE*)> out(::popen(command.c_str(), "r"), ::pclose);
    std::string text;
    char piece[4096];
    for (std::size_t n; (n = std::fread(piece, 1, sizeof(piece), out.get())) > 0;) text.append(piece, n);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  std::string property(const std::string& name) const { return says("systemctl show --value -p " + name + " " + unit()); }
  std::string file(const std::string& name) const { return read_small_file(world_->work() + "/" + name).value_or(""); }

  static Instant now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }

  std::unique_ptr<DirectWorld> world_;
  std::vector<node::Event> events_;
  proc::EventSink sink_ = [this](node::Event event) { events_.push_back(std::move(event)); };
  const AssignmentId id_{17, 2, {"worker", 1}};
};

TEST_F(SystemdUnit, IsAsItWasOrdered) {
  task::ShimSpec spec = shell("exec sleep 1000000");
  spec.memory_bytes = 64 << 20;
  const std::int32_t pid = run(spec);
  EXPECT_EQ(property("ActiveState"), "active");
  EXPECT_EQ(property("Description"), "test worker-1, generation 2");
  EXPECT_EQ(property("Slice"), "dtrain.slice");
  EXPECT_EQ(property("MemoryMax"), "67108864");
  EXPECT_EQ(property("KillMode"), "mixed");
  EXPECT_EQ(property("OOMPolicy"), "continue");
  EXPECT_EQ(property("StopPropagatedFrom"), "dtrain-units.target");
  EXPECT_EQ(property("CollectMode"), "inactive-or-failed");
  const auto state = proc::read_record(world_->directory(id_), "state");
  ASSERT_TRUE(state);
  EXPECT_EQ(property("MainPID"), std::to_string(state->fixed.shim_pid));
  const std::string cgroup = read_small_file("/proc/" + std::to_string(pid) + "/cgroup").value_or("");
  EXPECT_NE(cgroup.find("0::/dtrain.slice/" + unit() + "/task\n"), std::string::npos) << cgroup;
}

// What systemd gives its services is not the task's.
TEST_F(SystemdUnit, ATasksEnvironmentIsItsOwn) {
  task::ShimSpec spec = shell("env | sort > env; exec sleep 1000000");
  spec.env["MINE"] = "1";
  run(spec);
  ASSERT_TRUE(pump([&] { return file("env").find("\nPWD=") != std::string::npos || file("env").find("_=") != std::string::npos; }))
      << file("env");
  for (const char* foreign : {"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "LANG=", "LISTEN_"})
    EXPECT_EQ(file("env").find(foreign), std::string::npos) << file("env");
  EXPECT_NE(file("env").find("NOTIFY_SOCKET=" + world_->directory(id_)), std::string::npos) << file("env");
  EXPECT_NE(file("env").find("MINE=1\n"), std::string::npos);
}

TEST_F(SystemdUnit, ATaskIsNeitherUrgentNorSpared) {
  const std::int32_t pid = run(shell("exec sleep 1000000"));
  EXPECT_EQ(says("ps -o ni= -p " + std::to_string(pid) + " | tr -d ' '"), "0");
  EXPECT_EQ(says("cat /proc/" + std::to_string(pid) + "/oom_score_adj"), "0");
}

TEST_F(SystemdUnit, StoppedItAsksTheTaskAndSaysThatTheHostDidIt) {
  task::ShimSpec spec = shell("trap 'echo asked > said; exit 7' USR1; while :; do sleep 0.05; done");
  spec.stop_signal = SIGUSR1;
  run(spec);
  ASSERT_TRUE(pump([&] { return world_->processes(id_) >= 1; }));
  says("sleep 0.3; systemctl stop " + unit());
  EXPECT_EQ(exit().code, 7);
  EXPECT_TRUE(exit().with_host);
  EXPECT_EQ(file("said"), "asked\n");
  EXPECT_TRUE(pump([&] { return last<node::ShimGone>() != nullptr; }));
  EXPECT_TRUE(pump([&] { return property("LoadState") == "not-found"; })) << "nothing of it is kept";
  // Whoever starts it anew at the word of its exit has been told that this takes a new shim.
  const auto at = [&](auto is) { return std::find_if(events_.begin(), events_.end(), is) - events_.begin(); };
  EXPECT_LT(at([](const auto& event) { return std::holds_alternative<node::ShimGone>(event); }),
            at([](const auto& event) { return std::holds_alternative<node::AttemptExited>(event); }));
  events_.clear();
  launch(spec);
  world_->runner().start(id_, 2);
  EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>() != nullptr; }));
}

TEST_F(SystemdUnit, WhatIgnoresTheStopIsKilledWithItsShim) {
  task::ShimSpec spec = shell("trap '' TERM; echo up > up; while :; do sleep 1000; done");
  spec.stop_grace = -9s;  // of which the unit adds ten seconds: one
  run(spec);
  ASSERT_TRUE(pump([&] { return file("up") == "up\n"; }));
  says("systemctl stop " + unit());
  EXPECT_TRUE(pump([&] { return last<node::ShimGone>() != nullptr; }));
  EXPECT_TRUE(exit().with_host);
  EXPECT_EQ(world_->processes(id_), 0);
}

TEST_F(SystemdUnit, FrozenByOrderItIsThawedToEnd) {
  run(shell("trap 'exit 7' TERM; echo up > up; while :; do sleep 0.05; done"));
  ASSERT_TRUE(pump([&] { return file("up") == "up\n"; }));
  world_->runner().freeze(id_, true);
  ASSERT_TRUE(pump([&] { return last<node::FreezeDone>() != nullptr; }));
  says("systemctl stop " + unit());
  EXPECT_EQ(exit().code, 7);
}

TEST_F(SystemdUnit, BeyondItsMemoryItEndsAndSaysWhy) {
  task::ShimSpec spec = world_->command(id_, {"python3", "-SEc", "b'a' * (300 << 20)"});
  spec.memory_bytes = 64 << 20;
  run(spec);
  EXPECT_TRUE(exit().out_of_memory);
  world_->runner().start(id_, 2);  // the shim has survived
  EXPECT_TRUE(pump([&] { return last<node::AttemptStarted>()->attempt == 2; }));
}

// Numbers of NVIDIA: no driver is behind them, which is told to whoever may open them; what is denied is denied before anybody looks.
TEST_F(SystemdUnit, DevicesOfOthersAreClosed) {
  const std::string node = "/var/tmp/dtrain-test-gpu";  // work directories may lie where device nodes are no such
  ::unlink(node.c_str());
  ASSERT_EQ(::mknod(node.c_str(), S_IFCHR | 0666, makedev(195, 1)), 0);
  for (const bool confined : {false, true}) {
    events_.clear();
    const std::string place = confined ? "confined" : "free";
    task::ShimSpec spec = shell("for f in " + node + " /dev/null; do cat $f > /dev/null 2>> " + place + "; done; echo end >> " + place);
    spec.env["LC_ALL"] = "C";
    if (confined) spec.own_gpus.emplace();
    run(spec);
    exit();
    EXPECT_EQ(file(place), "cat: " + node + (confined ? ": Operation not permitted" : ": No such device or address") + "\nend\n");
    world_->runner().end(id_);
    ASSERT_TRUE(pump([&] { return last<node::ShimGone>() != nullptr; }));
    world_->runner().remove_files(id_);
  }
  ::unlink(node.c_str());
}

// A GPU whose nodes cannot be told: its task sees all rather than not even its own, and that is said.
TEST_F(SystemdUnit, WhatCannotBeConfinedIsSaid) {
  task::ShimSpec spec = shell("exec sleep 1000000");
  spec.own_gpus = {{"0000:ff:1f.7", "nvidia", -1}};
  run(spec);
  EXPECT_EQ(property("DevicePolicy"), "auto");
  EXPECT_THAT(world_->warnings(), testing::Contains(testing::Field(&Error::message, testing::HasSubstr("0000:ff:1f.7"))));
}

// A task may set its own CPUs within its set. Where there is no set it may leave them, and the agent says so.
TEST_F(SystemdUnit, CpusAndNumaNodeAreBound) {
  task::ShimSpec spec = shell(
      "grep Cpus_allowed_list: /proc/self/status > before; taskset -cp 0,1 $$; "
      "grep Cpus_allowed_list: /proc/$$/status > after; exec sleep 1000000");
  spec.cpus = {1};
  spec.numa_node = 0;
  run(spec);
  ASSERT_TRUE(pump([&] { return !file("after").empty(); }));
  EXPECT_EQ(file("before"), "Cpus_allowed_list:\t1\n");
  const bool said = std::any_of(world_->warnings().begin(), world_->warnings().end(), [](const Error& warning) {
    return warning.message.find("CPUs of tasks that set their own") != std::string::npos;
  });
  EXPECT_EQ(file("after") != file("before"), said) << file("after");
  EXPECT_EQ(property("NUMAPolicy"), "preferred");
  EXPECT_EQ(property("NUMAMask"), "0");
}

TEST_F(SystemdUnit, OutputIsInTheJournalUnderTheJobsName) {
  run(shell("echo to the journal; echo and errors >&2; printf unfinished"));
  exit();
  const std::string journal = "journalctl --no-pager -o cat DTRAIN_JOB=test DTRAIN_TASK=worker-1 _SYSTEMD_UNIT=" + unit();
  ASSERT_TRUE(pump([&] { return says(journal).find("unfinished") != std::string::npos; })) << says(journal);
  // In which order a shim reads the two streams is nobody's promise.
  EXPECT_EQ(says(journal + " SYSLOG_IDENTIFIER=dtrain-task | sort"), "and errors\nto the journal\nunfinished");
}

// Far more than its socket holds, which systemd makes some 8 MiB wide, while journald reads nothing: the task ends, its log has all, and
// the journal says what it lacks.
TEST_F(SystemdUnit, AJournalThatDoesNotReadStopsNobody) {
  const auto journald = [](const std::string& signal) {
    says("kill -" + signal + " $(systemctl show --value -p MainPID systemd-journald)");
  };
  constexpr std::uintmax_t kOutput = 40'000'000;
  task::ShimSpec spec =
      shell("if [ $DTRAIN_ATTEMPT = 1 ]; then head -c " + std::to_string(kOutput) + " /dev/zero | tr '\\0' x; else echo afterwards; fi");
  launch(spec);
  journald("STOP");
  world_->runner().start(id_, 1);
  exit();
  journald("CONT");
  EXPECT_EQ(std::filesystem::file_size(world_->directory(id_) + "/log.0"), kOutput);
  events_.clear();
  // Room there is once journald has read on.
  const std::string journal = "journalctl --no-pager -o cat DTRAIN_JOB=test _SYSTEMD_UNIT=" + unit() + " | grep -v xxx";
  AttemptNumber attempt = 1;
  EXPECT_TRUE(pump([&] {
    if (last<node::AttemptExited>() != nullptr || attempt == 1) {
      events_.clear();
      world_->runner().start(id_, ++attempt);
    }
    return says(journal).find("bytes of output are left out here; dtrainctl logs has them]\nafterwards") != std::string::npos;
  })) << says(journal);
  exit();
}

// Many at once: more than are let start together, and each comes up.
TEST_F(SystemdUnit, ManyAtOnce) {
  constexpr std::uint32_t kMany = 40;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    const AssignmentId id{18, 1, {"worker", i}};
    world_->runner().launch(world_->command(id, {"sleep", "1000000"}));
  }
  const auto up = [&] {
    std::size_t count = 0;
    for (const node::Event& event : events_)
      if (const auto* found = std::get_if<node::ShimUp>(&event)) {
        EXPECT_TRUE(found->result) << found->result.error().text();
        ++count;
      }
    return count;
  };
  EXPECT_TRUE(pump([&] { return up() == kMany; })) << up();
}

TEST_F(SystemdUnit, IsLaunchedThroughAManagerThatExecutesItselfAnew) {
  for (std::uint32_t i = 0; i < 8; ++i) {
    events_.clear();
    const AssignmentId id{19, 1, {"worker", i}};
    world_->runner().launch(world_->command(id, {"sleep", "1000000"}));
    world_->runner().dispatch(sink_);
    says("systemctl daemon-reexec");
    ASSERT_TRUE(pump([&] { return last<node::ShimUp>() != nullptr; }));
    ASSERT_TRUE(last<node::ShimUp>()->result) << last<node::ShimUp>()->result.error().text();
    EXPECT_EQ(says("systemctl show --value -p ActiveState " + unit_of(id)), "active");
  }
}

TEST_F(SystemdUnit, WithoutDBusItIsLaunchedAllTheSame) {
  says("systemctl stop dbus.socket dbus.service");
  launch(shell("exec sleep 1000000"));
  says("systemctl start dbus.socket dbus.service");
  EXPECT_EQ(property("ActiveState"), "active");
}

// Neither it nor systemd is there for a moment.
TEST_F(SystemdUnit, IsLaunchedOverABusThatIsBegunAnew) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    events_.clear();
    const AssignmentId id{20, 1, {"worker", i}};
    world_->runner().launch(world_->command(id, {"sleep", "1000000"}));
    world_->runner().dispatch(sink_);
    says("systemctl restart dbus.service");
    ASSERT_TRUE(pump([&] { return last<node::ShimUp>() != nullptr; }));
    ASSERT_TRUE(last<node::ShimUp>()->result) << last<node::ShimUp>()->result.error().text();
    EXPECT_EQ(says("systemctl show --value -p ActiveState " + unit_of(id)), "active");
  }
}

// What systemd refuses is told in its words.
TEST_F(SystemdUnit, ARefusalSaysWhy) {
  DirectWorld::Options options;
  options.systemd = true;
  options.devices = {"no-device"};  // neither in /dev nor a class of devices
  world_ = std::make_unique<DirectWorld>(options);
  task::ShimSpec spec = shell("exit 0");
  spec.own_gpus.emplace();
  world_->runner().launch(spec);
  ASSERT_TRUE(pump([&] { return last<node::ShimUp>() != nullptr; }));
  ASSERT_FALSE(last<node::ShimUp>()->result);
  EXPECT_THAT(last<node::ShimUp>()->result.error().message, testing::HasSubstr("through systemd: DeviceAllow= requires"));
}

// What it would refuse for want of memory is not asked for.
TEST_F(SystemdUnit, ANumaNodeThatIsNotThereKeepsNothingFromStarting) {
  task::ShimSpec spec = shell("exec sleep 1000000");
  spec.numa_node = 100'000;  // no kernel has as many
  launch(spec);
  EXPECT_EQ(property("ActiveState"), "active");
  EXPECT_THAT(world_->warnings(), testing::Contains(testing::Field(&Error::message, testing::HasSubstr("NUMA"))));
}

// Asked for by an agent that is dead by now, while the next one has launched another in its place: the bus stood still meanwhile, and
// systemd hears of both. The directory is the second one's, and only that one is there.
TEST_F(SystemdUnit, OneThatComesTooLateTakesNothingFromItsSuccessor) {
  const auto bus = [](const std::string& signal) { says("kill -" + signal + " $(systemctl show --value -p MainPID dbus.service)"); };
  const auto restart_agent = [&] {
    world_->agent_dies();
    world_->agent_returns();
    for (const task::FoundShim& found : world_->runner().list())
      if (found.id == id_) return found.shim_alive;
    return false;
  };
  const AssignmentId other{21, 1, {"worker", 0}};
  world_->runner().launch(world_->command(other, {"sleep", "1000000"}));  // so that there is a connection
  ASSERT_TRUE(pump([&] { return last<node::ShimUp>() != nullptr; }));
  events_.clear();
  bus("STOP");
  world_->runner().launch(shell("exec sleep 1000000"));
  world_->runner().dispatch(sink_);
  const std::string late = unit();
  EXPECT_FALSE(restart_agent());
  world_->runner().launch(shell("exec sleep 1000000"));
  world_->runner().dispatch(sink_);
  EXPECT_NE(unit(), late);
  bus("CONT");
  ASSERT_TRUE(pump([&] { return last<node::ShimUp>() != nullptr; }));
  ASSERT_TRUE(last<node::ShimUp>()->result) << last<node::ShimUp>()->result.error().text();
  EXPECT_TRUE(pump([&] { return says("systemctl show --value -p ActiveState " + late) == "inactive"; }));
  EXPECT_EQ(property("ActiveState"), "active");
  EXPECT_TRUE(restart_agent()) << "its socket and its state are its own";
}

// systemd keeps a copy of the first connection: once that is over it must wake nobody.
TEST_F(SystemdUnit, WithoutAnAgentAndWithANewOneItRests) {
  const std::int32_t pid = run(shell("exec sleep 1000000"));
  ASSERT_GT(pid, 0);
  const auto cpu = [this] {  // nanoseconds of the shim's
    return std::stoll(says("cut -d' ' -f1 /proc/" + property("MainPID") + "/schedstat"));
  };
  const auto used = [&] {
    const auto before = cpu();
    const Instant end = now() + 500ms;
    EXPECT_TRUE(pump([&] { return now() >= end; }));
    return cpu() - before;
  };
  constexpr std::int64_t kRest = 100'000'000;
  world_->agent_dies();
  world_->agent_returns();
  ASSERT_EQ(world_->runner().list().size(), 1u);
  EXPECT_LT(used(), kRest);
}

// Ordered a moment before the agent died, and not yet there when the next one looks: it must not come afterwards.
TEST_F(SystemdUnit, WhatComesTooLateForAnAgentDoesNotStay) {
  for (int i = 0; i < 5; ++i) {
    world_->runner().launch(shell("exec sleep 1000000"));
    world_->runner().dispatch(sink_);
    const std::string name = unit();
    world_->agent_dies();
    world_->agent_returns();
    const auto found = world_->runner().list();
    ASSERT_EQ(found.size(), 1u);
    if (!found[0].shim_alive) {
      EXPECT_TRUE(pump([&] { return says("systemctl show --value -p ActiveState " + name) == "inactive"; })) << name;
      continue;
    }
    events_.clear();
    world_->runner().end(id_);
    ASSERT_TRUE(pump([&] { return last<node::ShimGone>() != nullptr; }));
  }
}

}  // namespace
}  // namespace dtrain::conformance
