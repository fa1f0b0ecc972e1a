// What a real shim does beyond the conformance suite: output on disk, limits, users. Real processes on this host.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstring>

#include "agent/dtrain-shim/protocol.h"
#include "agent/proc/launch_file.h"
#include "agent/proc/record.h"
#include "common/task/log_format.h"
#include "tests/unit/proc/shim_world.h"

namespace dtrain::proc {
namespace {

using conformance::DirectWorld;
using ShimTest = ShimWorld;

TEST_F(ShimTest, ATaskIsNotSparedWhenMemoryIsShort) {
  const std::string own = "/proc/self/oom_score_adj";
  const std::string before = read_small_file(own).value_or("0\n");
  write_control(own, "-500");  // as dtraind.service has it; without the right to it nothing changes, and nothing is shown
  use();
  run(shell("cat /proc/self/oom_score_adj"));
  write_control(own, before);
  EXPECT_EQ(output().bytes[0], before.starts_with("-") ? "0\n" : before);
}

// Also of the real-time signals that a C library keeps for itself, and of what the agent's own parent ignored.
TEST_F(ShimTest, ATaskIsBornWithNoSignalBlockedOrIgnored) {
  const int ignored[] = {SIGHUP, SIGPIPE, SIGXFSZ, SIGRTMIN, SIGRTMAX};
  std::vector<sighandler_t> before;
  for (const int number : ignored) before.push_back(::signal(number, SIG_IGN));
  use();
  run(shell("grep -E 'Sig(Blk|Ign)' /proc/self/status"));
  for (std::size_t i = 0; i < before.size(); ++i) ::signal(ignored[i], before[i]);
  EXPECT_EQ(output().bytes[0], "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_F(ShimTest, OnlySigkillEndsAShim) {
  use();
  launch(shell("sleep 1000"));
  world_->runner().start(id_, 1);
  ASSERT_TRUE(until<node::AttemptStarted>());
  const std::int32_t shim = read_record(world_->directory(id_), shim::kStateFile)->fixed.shim_pid;
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (number == SIGKILL || number == SIGSTOP || number == SIGTERM) continue;
    ASSERT_EQ(::kill(shim, number), 0) << number;
  }
  world_->runner().signal({id_, SIGUSR1});  // which it passes on, after all of those
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_EQ(last<node::AttemptExited>()->exit.signal, SIGUSR1);
}

// Whose launch file needs more room than the shim has set aside.
TEST_F(ShimTest, ALongCommandReachesTheTask) {
  use();
  std::vector<std::string> command = {"sh", "-c", "echo $#; printf %s \"$1\" | wc -c", "sh", std::string(100'000, 'x')};
  for (int i = 0; i < 20'000; ++i) command.push_back("y");
  run(world_->command(id_, command));
  EXPECT_EQ(output().bytes[0], "20001\n100000\n");
}

TEST_F(ShimTest, EveryByteIsInTheLogWithItsStreamAndAttempt) {
  use();
  launch(shell("seq 1 50000; echo attempt $DTRAIN_ATTEMPT >&2; exit 4"));
  std::string numbers;
  for (int i = 1; i <= 50000; ++i) numbers += std::to_string(i) + "\n";
  const task::Exit exit = attempt(1);
  EXPECT_EQ(exit.code, 4);
  EXPECT_EQ(exit.stderr_tail, "attempt 1\n");
  EXPECT_EQ(attempt(7).stderr_tail, "attempt 7\n");
  const Output out = output();
  EXPECT_EQ(out.bytes[0], numbers + numbers);
  EXPECT_EQ(out.bytes[1], "attempt 1\nattempt 7\n");
  EXPECT_EQ(out.attempts.front(), 1u);
  EXPECT_EQ(out.attempts.back(), 7u);
}

TEST_F(ShimTest, LogFilesAreRotatedAndTheNewestKept) {
  DirectWorld::Options options;
  options.log_file_bytes = 20'000;
  options.log_files = 3;
  use(options);
  run(shell("for i in $(seq 1 200); do head -c 1000 /dev/zero | tr '\\0' x; done; echo end"));
  const Output out = output();
  EXPECT_LE(out.files, 3);
  EXPECT_GT(out.bytes[0].size(), 5'000u);
  EXPECT_LT(out.bytes[0].size(), 200'000u);
  EXPECT_EQ(out.bytes[0].substr(out.bytes[0].size() - 4), "end\n");
}

// As on a host that is rebooted again and again: each launch begins a file.
TEST_F(ShimTest, SmallLogFilesOfManyLaunchesAreAllKept) {
  DirectWorld::Options options;
  options.log_files = 3;
  use(options);
  std::string all;
  for (AttemptNumber number = 1; number <= 12; ++number) {
    events_.clear();
    launch(shell("echo $DTRAIN_ATTEMPT"));
    attempt(number);
    all += std::to_string(number) + "\n";
    world_->runner().end(id_);
    ASSERT_TRUE(until<node::ShimGone>());
  }
  EXPECT_EQ(output().bytes[0], all);
}

TEST_F(ShimTest, TheTailOfStderrIsItsLastWholeLines) {
  use();
  const task::Exit exit = run(shell("seq 100000 101000 >&2"));
  EXPECT_LE(exit.stderr_tail.size(), shim::kTailBytes);
  EXPECT_GT(exit.stderr_tail.size(), shim::kTailBytes - 8);
  EXPECT_EQ(exit.stderr_tail.substr(exit.stderr_tail.size() - 7), "101000\n");
  EXPECT_EQ(exit.stderr_tail.substr(0, 2), "10");
  EXPECT_EQ(exit.stderr_tail.find('\n'), 6u);
}

TEST_F(ShimTest, LimitsDirectoryAndEnvironmentReachTheTask) {
  DirectWorld::Options options;
  options.ulimits = {{"nofile", 77}, {"core", 0}};
  use(options);
  auto spec =
      shell("ulimit -n; pwd; umask; echo $DTRAIN_ATTEMPT; echo ${NOTIFY_SOCKET:+set}; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l");
  run(spec);
  EXPECT_EQ(output().bytes[0], "77\n" + world_->work() + "\n0022\n1\nset\n/dev/null\n4\n");
}

TEST_F(ShimTest, TheUsersOwnNotifySocketWins) {
  use();
  auto spec = shell("echo $NOTIFY_SOCKET");
  spec.env["NOTIFY_SOCKET"] = "/elsewhere";
  run(spec);
  EXPECT_EQ(output().bytes[0], "/elsewhere\n");
}

// All attempts of it, also at the word of the agent's next life, which is told whose they are.
TEST_F(ShimTest, ATaskRunsOnCpusOfItsOwn) {
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
  std::uint32_t last = 0;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mine)) last = cpu;
  use();
  auto spec = shell("grep Cpus_allowed_list /proc/self/status");
  spec.cpus = {last};
  const std::string line = "Cpus_allowed_list:\t" + std::to_string(last) + "\n";
  run(spec);
  EXPECT_EQ(output().bytes[0], line);
  world_->agent_dies();
  world_->agent_returns();
  const auto found = world_->runner().list();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].cpus, spec.cpus);
  attempt(2);
  EXPECT_EQ(output().bytes[0], line + line);
  EXPECT_TRUE(world_->warnings().empty()) << world_->warnings().front().text();
}

TEST_F(ShimTest, WhoHasNoneMayUseAll) {
  use();
  run(shell("grep Cpus_allowed_list /proc/self/status; grep Cpus_allowed_list /proc/$PPID/status"));
  const std::string both = output().bytes[0];
  ASSERT_GT(both.size(), 0u);
  EXPECT_EQ(both.substr(0, both.size() / 2), both.substr(both.size() / 2)) << "the task's and its shim's";
}

TEST_F(ShimTest, MemoryComesFromItsNode) {
  use();
  auto spec = shell("head -n 1 /proc/self/numa_maps | cut -d' ' -f2; sleep 0.2");
  spec.numa_node = 0;
  run(spec);
  const bool preferred = output().bytes[0] == "prefer:0\n";
  EXPECT_EQ(world_->warnings().size(), preferred ? 0u : 1u)
      << "where a kernel or a container has no NUMA policies that is said: " << output().bytes[0];
}

// CPUs that are not there never keep it from running; that it runs on others is said, once.
TEST_F(ShimTest, CpusThatAreOfflineAreDoneWithout) {
  use();
  auto spec = shell("sleep 0.2; echo ran");
  spec.cpus = {8 * shim::kCpuBytes - 1};
  launch(spec);
  EXPECT_EQ(attempt(1).code, 0);
  EXPECT_EQ(attempt(2).code, 0);
  EXPECT_EQ(output().bytes[0], "ran\nran\n");
  ASSERT_EQ(world_->warnings().size(), 1u);
  EXPECT_NE(world_->warnings()[0].message.find("could not limit CPUs as asked: asked was 65535, in force is "), std::string::npos)
      << world_->warnings()[0].message;
}

TEST(LaunchFile, CpusAndNodeComeBack) {
  LaunchFile launch;
  launch.argv = {"a"};
  EXPECT_TRUE(decode_launch(*encode_launch(launch))->cpus.empty());
  EXPECT_EQ(decode_launch(*encode_launch(launch))->numa_node, -1);
  launch.groups = {7, 8, 9};
  launch.cpus = {0, 63, 64, 200};
  launch.numa_node = 3;
  const auto back = decode_launch(*encode_launch(launch));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->cpus, launch.cpus);
  EXPECT_EQ(back->numa_node, 3);
  EXPECT_EQ(back->groups, launch.groups);
  launch.cpus = {8 * shim::kCpuBytes};
  EXPECT_FALSE(encode_launch(launch));
}

// One that an agent of version 3 wrote: its header ends before the CPUs.
TEST(LaunchFile, OneOfAnOlderAgentHasNoCpus) {
  LaunchFile launch;
  launch.argv = {"a"};
  std::string bytes = *encode_launch(launch);
  constexpr std::uint32_t kOlder = offsetof(shim::LaunchHeader, cpus_offset);
  std::memcpy(bytes.data() + offsetof(shim::LaunchHeader, header_bytes), &kOlder, sizeof kOlder);
  std::memset(bytes.data() + kOlder, 0xff, sizeof(shim::LaunchHeader) - kOlder);
  const auto back = decode_launch(bytes);
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->cpus.empty());
  EXPECT_EQ(back->numa_node, -1);
}

TEST(LaunchFile, CpusBeyondItsEndAreDamage) {
  LaunchFile launch;
  launch.argv = {"a"};
  const std::string good = *encode_launch(launch);
  for (const std::uint32_t wrong : {std::uint32_t{8}, shim::kCpuBytes + 8, 0xffffffffu}) {
    std::string bytes = good;
    const auto offset = static_cast<std::uint32_t>(bytes.size());
    std::memcpy(bytes.data() + offsetof(shim::LaunchHeader, cpus_offset), &offset, sizeof offset);
    std::memcpy(bytes.data() + offsetof(shim::LaunchHeader, cpu_bytes), &wrong, sizeof wrong);
    EXPECT_FALSE(decode_launch(bytes)) << wrong;
  }
}

TEST_F(ShimTest, AWorkDirectoryThatIsMissingIsNamed) {
  use();
  auto spec = shell("true");
  spec.work_dir = world_->root() + "/missing";
  const task::Exit exit = run(spec);
  EXPECT_EQ(exit.code, 126);
  EXPECT_EQ(exit.cause, "could not enter " + spec.work_dir + ": No such file or directory");
}

TEST_F(ShimTest, ATaskRunsAsItsUser) {
  use();
  // Only root can become somebody else.
  const passwd* nobody = ::geteuid() == 0 ? ::getpwnam("nobody") : ::getpwuid(::geteuid());
  ASSERT_NE(nobody, nullptr);
  const std::string expected = std::to_string(nobody->pw_uid) + " " + std::to_string(nobody->pw_gid) + "\n";
  auto spec = shell("echo $(id -u) $(id -g)");
  spec.user = {nobody->pw_name, nobody->pw_uid};
  run(spec);
  EXPECT_EQ(output().bytes[0], expected);
}

TEST_F(ShimTest, AnUnknownUserIsAnError) {
  use();
  auto spec = shell("true");
  spec.user = {"no-such-user-here", 4242};
  world_->runner().launch(spec);
  ASSERT_TRUE(until<node::ShimUp>());
  ASSERT_FALSE(last<node::ShimUp>()->result);
  EXPECT_NE(last<node::ShimUp>()->result.error().text().find("no-such-user-here"), std::string::npos);
}

TEST_F(ShimTest, MemoryBeyondTheLimitIsAnOutOfMemoryExit) {
  use();
  auto spec = world_->command(id_, {"python3", "-SEc", "x = bytearray(400 << 20)"});
  spec.memory_bytes = 64 << 20;
  launch(spec);
  const auto launched = read_launch(world_->directory(id_));
  ASSERT_TRUE(launched);
  const task::Exit exit = attempt(1);
  const bool limited = !launched->memory_cgroup.empty() || ::access((launched->cgroup + "/task/memory.max").c_str(), F_OK) == 0;
  EXPECT_EQ(exit.out_of_memory, limited);  // where there is no memory controller to be had, there is no limit
  EXPECT_EQ(exit.signal, limited ? SIGKILL : 0);
}

// As dtrain-hold does it when the host is stopped: the shim is asked first, then its task. Many times: the task may be gone first.
TEST_F(ShimTest, AnEndThatTheHostAskedForIsNoneOfTheTasks) {
  for (int i = 0; i < 20; ++i) {
    if (world_) world_->runner().end(id_), until<node::ShimGone>();
    use();
    events_.clear();
    launch(shell("trap 'exit 0' TERM; echo up >&2; while :; do sleep 0.01; done"));
    world_->runner().start(id_, 1);
    ASSERT_TRUE(until<node::AttemptStarted>());
    const std::int32_t task = last<node::AttemptStarted>()->pid;
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    ASSERT_TRUE(world_->pump(sink, [this] { return output().bytes[1] == "up\n"; }));
    const auto state = read_record(world_->directory(id_), shim::kStateFile);
    ASSERT_TRUE(state);
    ::kill(state->fixed.shim_pid, SIGTERM);
    ::kill(task, SIGTERM);
    ASSERT_TRUE(until<node::ShimGone>()) << "with nothing left to look after it leaves";
    ASSERT_NE(last<node::AttemptExited>(), nullptr);
    EXPECT_TRUE(last<node::AttemptExited>()->exit.with_host);
    EXPECT_EQ(last<node::AttemptExited>()->exit.code, 0);
    const auto exit = read_record(world_->directory(id_), shim::kExitFile);
    ASSERT_TRUE(exit);
    EXPECT_TRUE(exit->has(shim::kHostStops)) << "what an agent finds that was not there";
  }
}

// Killed with its task before it could write the end down.
TEST_F(ShimTest, AShimThatDiesAfterItsHostAskedItSaysSoInItsState) {
  use();
  launch(shell("trap '' TERM; while :; do sleep 1; done"));
  world_->runner().start(id_, 1);
  ASSERT_TRUE(until<node::AttemptStarted>());
  const auto state = [this] { return read_record(world_->directory(id_), shim::kStateFile); };
  const std::int32_t pid = state()->fixed.shim_pid;
  ::kill(pid, SIGTERM);
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  ASSERT_TRUE(world_->pump(sink, [&] { return state()->has(shim::kHostStops); }));
  EXPECT_EQ(last<node::AttemptExited>(), nullptr) << "SIGTERM to the shim ends no task";
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_TRUE(last<node::AttemptExited>()->exit.unknown);
  EXPECT_TRUE(last<node::AttemptExited>()->exit.with_host);
}

TEST_F(ShimTest, AFullDiskCostsOutputButNotTheTask) {
  use();
  const bool mounted = ::geteuid() == 0 && ::mount("none", world_->tasks().c_str(), "tmpfs", 0, "size=256k,mode=711") == 0;
  const task::Exit exit = run(shell("seq 1 100000; echo still here >&2; exit 5"));
  EXPECT_EQ(exit.code, 5);
  EXPECT_EQ(exit.stderr_tail, "still here\n");
  if (!mounted) return;
  const auto record = read_record(world_->directory(id_), "exit");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->fixed.attempt, 1u);
  EXPECT_GT(record->fixed.dropped_bytes, 0u);
  // The log's last lines account for every byte, however full the disk is, over the attempts.
  const std::size_t written = std::string("still here\n").size() + 588'895;
  for (const AttemptNumber n : {1u, 2u, 3u}) {
    if (n > 1) attempt(n);
    const Output out = output();
    std::size_t said = 0, kept = out.bytes[0].size();
    for (std::size_t at = 0; at < out.bytes[1].size();) {
      const std::string line = out.bytes[1].substr(at, out.bytes[1].find('\n', at) + 1 - at);
      if (line.starts_with("[dtrain: ")) said += std::stoul(line.substr(9));
      else if (line != "\n") kept += line.size();
      at += line.size();
    }
    EXPECT_EQ(kept + said, n * written) << "after attempt " << n;
    EXPECT_GT(said, 0u);
  }
  // Room again: a line says what is missing.
  EXPECT_EQ(::mount("none", world_->tasks().c_str(), "tmpfs", MS_REMOUNT, "size=16m,mode=711"), 0);
  const std::string before = output().bytes[0];
  attempt(4);
  EXPECT_EQ(output().bytes[0].size(), before.size() + 588'895);
  world_->runner().end(id_);
  EXPECT_TRUE(until<node::ShimGone>());
  ::umount2(world_->tasks().c_str(), MNT_DETACH);
}

// What a task prints goes before what the agent must write down: its end, for one.
TEST_F(ShimTest, OutputLeavesRoomOnTheDisk) {
  use();
  if (::geteuid() != 0 || ::mount("none", world_->tasks().c_str(), "tmpfs", 0, "size=4m,mode=711") != 0) return;
  const task::Exit exit = run(shell("head -c 8000000 /dev/zero; exit 5"));
  EXPECT_EQ(exit.code, 5);
  struct statvfs disk {};
  EXPECT_EQ(::statvfs(world_->tasks().c_str(), &disk), 0);
  EXPECT_GE(disk.f_bavail * disk.f_frsize, (4u << 20) / 32 - (16u << 10)) << "but for indexes and records";
  const auto record = read_record(world_->directory(id_), "exit");
  EXPECT_TRUE(record && record->fixed.dropped_bytes > 0);
  EXPECT_GT(output().bytes[0].size(), 3u << 20);
  world_->runner().end(id_);
  EXPECT_TRUE(until<node::ShimGone>());
  ::umount2(world_->tasks().c_str(), MNT_DETACH);
}

TEST(LaunchFileTest, SurvivesTheWayThroughBytes) {
  LaunchFile launch;
  launch.switch_user = true;
  launch.uid = 5;
  launch.groups = {5, 6};
  launch.argv = {"a", "", "c d"};
  launch.env = {{"X", "1=2"}, {"EMPTY", ""}};
  launch.work_dir = "/w";
  launch.notify = "@n";
  launch.port = 20001;
  launch.address = "127.0.0.1";
  launch.rlimits = {{RLIMIT_NOFILE, 9}};
  launch.lease = 7s;
  launch.epoch = 3;
  launch.first_nonce = 11;
  launch.is_unit = true;
  launch.stop_signal = 10;
  launch.signal_main = true;
  launch.stop_grace = 9s;
  const auto bytes = encode_launch(launch);
  ASSERT_TRUE(bytes);
  const auto back = decode_launch(*bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->argv, launch.argv);
  EXPECT_EQ(back->env, launch.env);
  EXPECT_EQ(back->groups, launch.groups);
  EXPECT_EQ(back->port, launch.port);
  EXPECT_EQ(back->rlimits, launch.rlimits);
  EXPECT_EQ(back->lease, launch.lease);
  EXPECT_EQ(back->epoch, launch.epoch);
  EXPECT_EQ(back->first_nonce, launch.first_nonce);
  EXPECT_TRUE(back->switch_user);
  EXPECT_TRUE(back->is_unit);
  EXPECT_EQ(back->stop_signal, launch.stop_signal);
  EXPECT_TRUE(back->signal_main);
  EXPECT_EQ(back->stop_grace, launch.stop_grace);
  for (std::size_t size = 0; size < bytes->size(); ++size) EXPECT_FALSE(decode_launch(std::string_view(*bytes).substr(0, size))) << size;
}

}  // namespace
}  // namespace dtrain::proc
