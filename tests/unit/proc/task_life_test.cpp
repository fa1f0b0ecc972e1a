// What a task is given at its start, why it cannot start, and what is left to it at its end. Real processes on this host.
#include <gtest/gtest.h>
#include <pwd.h>
#include <signal.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "tests/unit/proc/shim_world.h"

namespace dtrain::proc {
namespace {

using TaskLife = ShimWorld;

// A script around the trainer: what it calls saves its state when both are asked to end.
TEST_F(TaskLife, AScriptsProgramHasTheGraceOfTheScript) {
  use();
  launch(
      shell("python3 -c 'import signal, sys, time\n"
            "def save(number, frame): time.sleep(0.3); print(\"saved\", flush=True); sys.exit()\n"
            "signal.signal(signal.SIGTERM, save)\n"
            "print(\"training\", flush=True)\n"
            "while True: signal.pause()\n'; echo ended"));
  world_->runner().start(id_, 1);
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  ASSERT_TRUE(world_->pump(sink, [this] { return output().bytes[0] == "training\n"; }));
  world_->runner().signal({id_, SIGTERM, true, 60s});
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_EQ(last<node::AttemptExited>()->exit.signal, SIGTERM);
  EXPECT_EQ(output().bytes[0], "training\nsaved\n");
}

TEST_F(TaskLife, AMissingInterpreterIsNamed) {
  use();
  const auto cause = [&](const std::string& head, AttemptNumber n) {
    const std::string script = world_->work() + "/run.sh";
    std::ofstream(script) << head;
    std::filesystem::permissions(script, std::filesystem::perms(0755));
    if (n == 1) launch(world_->command(id_, {"./run.sh"}));
    const task::Exit exit = attempt(n);
    EXPECT_TRUE(exit.code == 127 || exit.code == 126) << exit.code;
    EXPECT_EQ(exit.stderr_tail, "");
    return exit.cause;
  };
  EXPECT_EQ(cause("#!/bin/sh\r\nexit 0\r\n", 1),
            "could not execute ./run.sh: its interpreter /bin/sh\\r: No such file or directory; the file has the line ends of Windows: "
            "convert it with dos2unix");
  EXPECT_EQ(cause("#! /no/such/python -u\n", 2), "could not execute ./run.sh: its interpreter /no/such/python: No such file or directory");
  EXPECT_EQ(cause("#!/etc/passwd\n", 3), "could not execute ./run.sh: its interpreter /etc/passwd: Permission denied");
  // A program of another C library.
  std::string program = read_small_file("/bin/true", 1 << 20).value_or("");
  const std::size_t loader = program.find("/lib64/ld-");
  ASSERT_NE(loader, std::string::npos);
  program.replace(loader, 6, "/lib99");
  const std::string expected = "could not execute ./run.sh: its interpreter " + std::string(program.c_str() + loader);
  EXPECT_EQ(cause(program, 4), expected + ": No such file or directory");
  // What is wrong with the program itself is said as before.
  EXPECT_EQ(cause("exit 0\n", 5), "could not execute ./run.sh: Exec format error");
  std::filesystem::remove(world_->work() + "/run.sh");
  EXPECT_EQ(attempt(6).cause, "could not execute ./run.sh: No such file or directory");
}

// kill -9 leaves shared memory behind. What is the task's goes with it, and nothing else does.
TEST_F(TaskLife, WhatATaskLeftInShmIsRemovedAtItsEnd) {
  if (::geteuid() != 0) return;  // the kernel tells root alone who makes what
  use();
  const std::string name = "/dev/shm/dtrain-test-" + std::to_string(::getpid());
  const auto there = [&](const char* which) { return std::filesystem::exists(name + which); };
  launch(world_->command(id_, {"/usr/bin/python3", "-c",
                               "import os, signal, sys, time\n"
                               "open(sys.argv[1] + '.main', 'w').write('x')\n"
                               "if os.fork() == 0:\n"
                               "  os.setsid()\n"
                               "  open(sys.argv[1] + '.child', 'w').write('x')\n"
                               "  os.rename(sys.argv[1] + '.child', sys.argv[1] + '.renamed')\n"
                               "  while not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.01)\n"
                               "  open(sys.argv[1] + '.replaced', 'w').write('x')\n"
                               "  time.sleep(1000)\n"
                               "while not os.path.exists(sys.argv[1] + '.foreign'): time.sleep(0.01)\n"
                               "os.kill(os.getpid(), signal.SIGKILL)\n",
                               name}));
  world_->runner().start(id_, 1);
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  ASSERT_TRUE(world_->pump(sink, [&] { return there(".main") && there(".renamed"); }));
  // Another's file took the name of one of its own, before anybody read of that; and one is another's from the beginning,
  // and ends the task.
  std::ofstream(name + ".go") << "y";
  const auto give_up = std::chrono::steady_clock::now() + 30s;
  while (!there(".replaced") && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  ASSERT_TRUE(there(".replaced"));
  std::ofstream(name + ".new") << "y";
  std::filesystem::rename(name + ".new", name + ".replaced");
  std::ofstream(name + ".foreign") << "y";
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_TRUE(world_->pump(sink, [&] { return !there(".main") && !there(".renamed"); }));
  EXPECT_TRUE(there(".replaced"));
  EXPECT_TRUE(there(".foreign"));
  EXPECT_FALSE(std::filesystem::exists(world_->directory(id_) + "/shm"));
  for (const char* which : {".replaced", ".foreign", ".go"}) std::filesystem::remove(name + which);
}

// Whoever likes calls themselves a shim, with an assignment among their arguments.
TEST_F(TaskLife, WhatAForgedShimMadeInShmStays) {
  if (::geteuid() != 0) return;
  use();
  const std::string name = "/dev/shm/dtrain-test-" + std::to_string(::getpid()) + ".forged";
  launch(shell("exec sleep 1000000"));
  world_->runner().start(id_, 1);
  ASSERT_TRUE(until<node::AttemptStarted>());
  const std::string forge = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'dtrain-shim', 0, 0, 0); open(sys.argv[1], 'w')";
  const auto command = "/usr/bin/python3 -c \"" + forge + "\" " + name + " " + world_->directory(id_);
  ASSERT_EQ(std::system(command.c_str()), 0);
  world_->runner().kill(id_);
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_FALSE(std::filesystem::exists(world_->directory(id_) + "/shm")) << "it was not noted";
  EXPECT_TRUE(std::filesystem::remove(name));
}

// It takes seconds to give back the memory of a large file: others' events do not wait for that.
TEST_F(TaskLife, ALargeFileInShmIsRemovedBesideTheLoop) {
  if (::geteuid() != 0) return;
  use();
  const std::string name = "/dev/shm/dtrain-test-" + std::to_string(::getpid()) + ".large";
  struct statvfs room {};
  ASSERT_EQ(::statvfs("/dev/shm", &room), 0);
  const std::uint64_t bytes = std::min<std::uint64_t>(700 << 20, room.f_bavail * room.f_frsize / 2);
  launch(shell("head -c " + std::to_string(bytes) + " /dev/zero > " + name + " || exit; echo there; exec sleep 1000000"));
  world_->runner().start(id_, 1);
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  ASSERT_TRUE(world_->pump(sink, [&] { return output().bytes[0] == "there\n" || last<node::AttemptExited>() != nullptr; }));
  ASSERT_EQ(last<node::AttemptExited>(), nullptr) << "no room in /dev/shm";
  world_->runner().kill(id_);
  const auto cpu = [] {  // of this thread: however busy the machine is
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return Duration(std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec));
  };
  Duration longest{0};
  while (last<node::AttemptExited>() == nullptr) {
    const Duration before = cpu();
    world_->runner().dispatch(sink);
    longest = std::max(longest, cpu() - before);
  }
  EXPECT_LT(longest, 60ms);
  EXPECT_TRUE(world_->pump(sink, [&] { return !std::filesystem::exists(name); }));
}

TEST_F(TaskLife, HomeAndShellAreThoseOfTheUsersEntry) {
  use();
  const passwd* entry = ::getpwuid(::geteuid());
  ASSERT_NE(entry, nullptr);
  task::ShimSpec spec = shell("echo $HOME $SHELL $USER $LOGNAME");
  spec.env["SHELL"] = "/the/jobs/own";
  run(spec);
  EXPECT_EQ(output().bytes[0], std::string(entry->pw_dir) + " /the/jobs/own " + entry->pw_name + " " + entry->pw_name + "\n");
}

}  // namespace
}  // namespace dtrain::proc
