// Tasks whose attempts are several processes at once. Real processes on this host.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/proc/launch_file.h"
#include "agent/proc/log_reader.h"
#include "common/base/limits.h"
#include "common/job/recorded_error.h"
#include "tests/unit/proc/shim_world.h"

namespace dtrain::proc {
namespace {

using ::testing::HasSubstr;

static_assert(shim::kMostRanks == limits::kRanksPerTask);

class Ranks : public ShimWorld {
 protected:
  Ranks() { use(); }
  task::ShimSpec ranks(std::uint32_t count, const std::string& script) {
    task::ShimSpec spec = shell(script);
    spec.env["R"] = "of all";
    for (std::uint32_t rank = 0; rank < count; ++rank)
      spec.ranks.push_back({{"R", std::to_string(rank)}, {"N", std::to_string(100 + rank)}});
    return spec;
  }
  std::string log_of(std::uint32_t rank) {
    LogFilter filter;
    filter.rank = rank + 1;
    LogReader reader(world_->directory(id_), filter);
    reader.finish();
    std::string text;
    for (auto step = reader.step(); step && *step != LogReader::Step::idle; step = reader.step())
      if (*step == LogReader::Step::segment) {
        EXPECT_TRUE(reader.read(1 << 20, text));
      }
    return text;
  }
};

// Rank 0 uses the CPU until it has seen a child of the shim stand still: rank 1, perhaps before its first command. It never forks: while it
// waited for a child of its own, it would lead nobody.
constexpr const char* kFirstLooks =
    "trap 'echo asked to end; exit 0' TERM; "
    "if [ $R = 1 ]; then until [ -e seen ]; do : $(:); done; echo went on; exit; fi; state=; "
    "until [ \"$state\" = T ]; do read children < /proc/$PPID/task/$PPID/children; for other in $children; do "
    "read pid name state rest < /proc/$other/stat; [ \"$state\" != T ] || break; done; done; : > seen; echo saw it; ";

TEST_F(Ranks, TheFirstLeads) {
  task::ShimSpec spec = ranks(2, std::string(kFirstLooks) + "until [ ! -e /proc/$other ]; do sleep 0.01; done");
  spec.first_leads = true;
  const task::Exit exit = run(spec);
  EXPECT_TRUE(exit.success()) << exit.code << " " << exit.signal;
  EXPECT_EQ(log_of(0), "saw it\n");
  EXPECT_EQ(log_of(1), "went on\n");
}

// As long as rank 1 stands still, rank 0 does not sleep.
TEST_F(Ranks, WhoIsHeldIsAskedToEndLikeAll) {
  task::ShimSpec spec = ranks(2, std::string(kFirstLooks) + "while :; do :; done");
  spec.first_leads = true;
  launch(spec);
  events_.clear();
  world_->runner().start(id_, 1);
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  ASSERT_TRUE(world_->pump(sink, [this] { return log_of(0) == "saw it\n"; }));
  world_->runner().signal({id_, SIGTERM, true, 20s});
  ASSERT_TRUE(until<node::AttemptExited>());
  const task::Exit& exit = last<node::AttemptExited>()->exit;
  EXPECT_TRUE(exit.success() || exit.signal == SIGTERM) << exit.code << " " << exit.signal;  // rank 1 may have had no trap yet
}

// None of what follows is a stop by somebody, of which the agent would be told.
TEST_F(Ranks, AFirstThatNeverSleepsHoldsTheOthersForASecondAtMost) {
  task::ShimSpec spec =
      ranks(3,
            "[ $R = 0 ] || { for i in 1 2 3 4 5 6 7 8 9 10; do for j in $(seq 100); do : $(:); done; done; : > done$R; exit; }; "
            "until [ -e done1 -a -e done2 ]; do :; done");
  spec.first_leads = true;
  EXPECT_TRUE(run(spec).success());
  for (const node::Event& event : events_) {
    const auto* seen = std::get_if<node::ProcessesSeen>(&event);
    EXPECT_FALSE(seen != nullptr && seen->stopped);
  }
}

TEST_F(Ranks, WhoFailsInItsLeadIsNamed) {
  task::ShimSpec spec = ranks(2, "[ $R = 1 ] || exit 5; while :; do : $(:); done");
  spec.first_leads = true;
  const task::Exit exit = run(spec);
  EXPECT_EQ(exit.code, 5);
  EXPECT_EQ(exit.rank, 1u);
}

TEST_F(Ranks, WhoIsDoneInItsLeadIsFollowed) {
  task::ShimSpec spec = ranks(2, "[ $R = 1 ] || exit 0; for j in $(seq 100); do : $(:); done; echo done");
  spec.first_leads = true;
  EXPECT_TRUE(run(spec).success());
  EXPECT_EQ(log_of(1), "done\n");
}

TEST_F(Ranks, EachFindsItsVariablesAndHasALogOfItsOwn) {
  const task::Exit exit = run(ranks(3, "echo $R $N $DTRAIN_ATTEMPT; echo err $R >&2; env | grep -c ^R="));
  EXPECT_TRUE(exit.success());
  EXPECT_EQ(exit.rank, 0u);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    std::vector<std::string> lines;
    std::istringstream log(log_of(rank));
    for (std::string line; std::getline(log, line);) lines.push_back(line);
    const std::string number = std::to_string(rank);
    EXPECT_THAT(lines, ::testing::UnorderedElementsAre(number + " 10" + number + " 1", "err " + number, "1"));
  }
}

TEST_F(Ranks, OneThatIsDoneWaitsForTheOthers) {
  // Rank 0 waits until the others are gone: if their end were the attempt's, it would be killed.
  const task::Exit exit =
      run(ranks(3,
                "echo $$ > pid$R; [ $R = 0 ] || exit 0; for r in 1 2; do until [ -s pid$r ] && ! kill -0 $(cat pid$r) 2>/dev/null; "
                "do sleep 0.01; done; done; echo last"));
  EXPECT_TRUE(exit.success()) << exit.code << " " << exit.signal;
  EXPECT_EQ(log_of(0), "last\n");
}

TEST_F(Ranks, TheFirstThatFailsEndsAllAndIsNamed) {
  const task::Exit exit = run(ranks(4,
                                    "echo up > up$R; echo words of $R >&2; [ $R = 2 ] || exec sleep 1000; "
                                    "for r in 0 1 3; do until [ -s up$r ]; do sleep 0.01; done; done; exit 7"));
  EXPECT_EQ(exit.code, 7);
  EXPECT_EQ(exit.rank, 3u) << "one more than the rank";
  EXPECT_EQ(exit.stderr_tail, "words of 2\n");
  EXPECT_NE(exit.ended, WallTime{});
  EXPECT_TRUE(world_->marked(id_.text()).empty()) << "the others are gone before the end is reported";
}

TEST_F(Ranks, DeathBySignalAndTheNextAttempt) {
  launch(ranks(2, "[ $DTRAIN_ATTEMPT = 2 ] && exit 0; [ $R = 1 ] && kill -9 $$; exec sleep 1000"));
  const task::Exit first = attempt(1);
  EXPECT_EQ(first.signal, SIGKILL);
  EXPECT_EQ(first.rank, 2u);
  const task::Exit second = attempt(2);
  EXPECT_TRUE(second.success());
  EXPECT_EQ(second.rank, 0u);
}

// Ranks of a gang: each waits for the others, so what ends the attempt is not what is at fault.
class StuckRanks : public Ranks {
 protected:
  bool until_file(const std::string& name) {
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    return world_->pump(sink, [&] { return read_small_file(world_->work() + "/" + name, 64).value_or("").ends_with('\n'); });
  }
  int pid_of(std::uint32_t rank) {
    const std::string name = "pid" + std::to_string(rank);
    return until_file(name) ? std::stoi(read_small_file(world_->work() + "/" + name, 64).value_or("0")) : 0;
  }
  void stop(int pid) {
    ::kill(pid, SIGSTOP);
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    const std::string stat = "/proc/" + std::to_string(pid) + "/stat";
    EXPECT_TRUE(world_->pump(sink, [&] { return read_small_file(stat).value_or("").find(") T ") != std::string::npos; }));
  }
  void make(const std::string& name) { std::ofstream(world_->work() + "/" + name) << "\n"; }
  std::size_t signs_of_life() const {
    return static_cast<std::size_t>(std::ranges::count_if(events_, [](const node::Event& event) {
      const auto* news = std::get_if<node::Notified>(&event);
      return news != nullptr && news->watchdog;
    }));
  }
};

TEST_F(StuckRanks, OneThatIsSilentIsNotCoveredByTheOthersAndIsNamed) {
  // Rank 1 falls silent, rank 2 never spoke, and rank 0 goes on and says when it has for a while. A child of each speaks for it.
  std::ofstream(world_->work() + "/speaks.py") << R"(
import os, socket, time
rank, link, later = os.environ["R"], socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), 0
print("words of", rank, file=__import__("sys").stderr, flush=True)
link.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0"))
while True:
    if rank == "2" or (rank == "1" and os.path.exists("hush")):
        open("hushed" + rank, "w").write("\n")
        time.sleep(1000)
    link.send(b"WATCHDOG=1")
    later += os.path.exists("hushed1")
    if later == 20: open("went-on", "w").write("\n")
    time.sleep(0.01)
)";
  launch(ranks(3, "/usr/bin/python3 speaks.py; exit 1"));
  world_->runner().start(id_, 1);
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  ASSERT_TRUE(until_file("hushed2"));
  ASSERT_TRUE(world_->pump(sink, [&] { return signs_of_life() > 3; })) << "a rank that never speaks is not waited for";
  make("hush");
  ASSERT_TRUE(until_file("hushed1"));
  const std::size_t before = signs_of_life();
  ASSERT_TRUE(until_file("went-on"));
  EXPECT_LE(signs_of_life(), before + 1);
  world_->runner().kill(id_);
  ASSERT_TRUE(until<node::AttemptExited>());
  const task::Exit& exit = last<node::AttemptExited>()->exit;
  EXPECT_EQ(exit.signal, SIGKILL);
  EXPECT_EQ(exit.rank, 2u);
  EXPECT_EQ(exit.stderr_tail, "words of 1\n");
  EXPECT_FALSE(exit.recorded);
}

TEST_F(StuckRanks, OneThatWasStoppedIsNamedWhenAnotherFails) {
  launch(ranks(3, "echo $$ > pid$R; while ! [ -e fail$R ]; do sleep 0.01; done; exit 7"));
  for (const bool goes_on : {false, true}) {
    events_.clear();
    for (const char* name : {"/pid0", "/pid1", "/pid2", "/fail2"}) std::filesystem::remove(world_->work() + name);
    world_->runner().start(id_, goes_on ? 2 : 1);
    ASSERT_TRUE(until<node::AttemptStarted>());
    const int stopped = pid_of(1);
    ASSERT_GT(pid_of(2), 0);
    stop(stopped);
    if (goes_on) ::kill(stopped, SIGCONT);
    make("fail2");
    ASSERT_TRUE(until<node::AttemptExited>());
    const task::Exit& exit = last<node::AttemptExited>()->exit;
    EXPECT_EQ(exit.code, 7);
    EXPECT_EQ(exit.rank, 3u);
    ASSERT_EQ(exit.recorded.has_value(), !goes_on);
    if (goes_on) continue;
    EXPECT_EQ(exit.recorded->rank, 2u);
    EXPECT_EQ(exit.recorded->message, job::kStoppedError);
    EXPECT_LE(exit.recorded->at, exit.ended);
  }
}

TEST_F(StuckRanks, TheProcessesAreKnownAndWhichOfThemWasStopped) {
  launch(ranks(3, "echo $$ > pid$R; while ! [ -e done$R ]; do sleep 0.01; done"));
  world_->runner().start(id_, 1);
  const std::vector<std::int32_t> pids{pid_of(0), pid_of(1), pid_of(2)};
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  const auto seen = [&](auto holds) {
    return world_->pump(sink, [&] {
      const auto* news = last<node::ProcessesSeen>();
      return news != nullptr && news->attempt == 1 && holds(*news);
    });
  };
  EXPECT_TRUE(seen([&](const node::ProcessesSeen& e) { return e.pids == pids && !e.stopped; }));
  const WallTime before = last<node::AttemptStarted>()->at;
  stop(pids[1]);
  EXPECT_TRUE(seen([&](const node::ProcessesSeen& e) { return e.stopped && e.stopped->rank == 2 && e.stopped->pid == pids[1]; }));
  EXPECT_GE(last<node::ProcessesSeen>()->stopped->since, before);
  ::kill(pids[1], SIGCONT);
  EXPECT_TRUE(seen([&](const node::ProcessesSeen& e) { return !e.stopped; }));
  make("done0");
  EXPECT_TRUE(seen([&](const node::ProcessesSeen& e) { return e.pids == std::vector<std::int32_t>({0, pids[1], pids[2]}); }));
  for (const char* name : {"done1", "done2"}) make(name);
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_TRUE(last<node::AttemptExited>()->exit.success());
}

TEST_F(StuckRanks, AFrozenTaskIsNotTakenForStopped) {
  launch(ranks(2, "echo $$ > pid$R; exec sleep 1000"));
  world_->runner().start(id_, 1);
  ASSERT_GT(pid_of(0), 0);
  ASSERT_GT(pid_of(1), 0);
  for (const bool freeze : {true, false}) {
    events_.clear();
    world_->runner().freeze(id_, freeze);
    ASSERT_TRUE(until<node::FreezeDone>());
  }
  for (const node::Event& event : events_) {
    const auto* news = std::get_if<node::ProcessesSeen>(&event);
    EXPECT_FALSE(news != nullptr && news->stopped);
  }
}

TEST_F(StuckRanks, OneThatWasStoppedIsNamedWhenAllAreKilledButNotInATaskThatIsFrozen) {
  launch(ranks(2, "echo $$ > pid$R; exec sleep 1000"));
  for (const bool frozen : {false, true}) {
    events_.clear();
    for (const char* name : {"/pid0", "/pid1"}) std::filesystem::remove(world_->work() + name);
    world_->runner().start(id_, frozen ? 2 : 1);
    ASSERT_TRUE(until<node::AttemptStarted>());
    const int stopped = pid_of(1);
    if (frozen) {
      world_->runner().freeze(id_, true);
      ASSERT_TRUE(until<node::FreezeDone>());
    } else {
      stop(stopped);
    }
    world_->runner().kill(id_);
    ASSERT_TRUE(until<node::AttemptExited>());
    const task::Exit& exit = last<node::AttemptExited>()->exit;
    EXPECT_EQ(exit.signal, SIGKILL);
    ASSERT_EQ(exit.recorded.has_value(), !frozen);
    if (frozen) continue;
    EXPECT_EQ(exit.recorded->rank, 2u);
    EXPECT_EQ(exit.rank, 2u);
  }
}

TEST_F(StuckRanks, WhoStandsStillIsWokenByAStop) {
  launch(ranks(2, "trap 'echo stopped; exit 0' TERM; echo $$ > pid$R; while :; do sleep 0.01; done"));
  world_->runner().start(id_, 1);
  for (const std::uint32_t rank : {0u, 1u}) {
    const int pid = pid_of(rank);
    ASSERT_NE(pid, 0);
    if (rank == 1) stop(pid);
  }
  world_->runner().signal({id_, SIGTERM, true, 600s});
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_TRUE(last<node::AttemptExited>()->exit.success());
  EXPECT_TRUE(log_of(1).ends_with("stopped\n")) << log_of(1);
}

TEST_F(Ranks, AStopReachesEveryMainProcess) {
  launch(ranks(3, "trap 'echo stopped; exit 0' TERM; echo up > up$R; while :; do sleep 0.01; done"));
  world_->runner().start(id_, 1);
  ASSERT_TRUE(until<node::AttemptStarted>());
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  ASSERT_TRUE(world_->pump(sink, [&] {
    return std::ranges::all_of(std::array{"/up0", "/up1", "/up2"},
                               [&](const char* name) { return read_small_file(world_->work() + name, 16).has_value(); });
  }));
  world_->runner().signal({id_, SIGTERM, false, 60s});
  ASSERT_TRUE(until<node::AttemptExited>());
  EXPECT_TRUE(last<node::AttemptExited>()->exit.success());
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(log_of(rank), "stopped\n");
}

// A process that is born into a frozen tree would hold its shim up.
TEST_F(Ranks, ThoseThatHaveNotBegunWaitWhileTheTaskIsFrozen) {
  launch(ranks(limits::kRanksPerTask, "echo up > up$R; exec sleep 1000"));
  world_->runner().start(id_, 1);
  ASSERT_TRUE(until<node::AttemptStarted>());
  world_->runner().freeze(id_, true);
  ASSERT_TRUE(until<node::FreezeDone>());
  const auto begun = world_->marked(id_.text()).size();
  world_->runner().freeze(id_, false);
  EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
  EXPECT_TRUE(world_->pump(sink, [&] { return world_->marked(id_.text()).size() == limits::kRanksPerTask; })) << begun << " had begun";
}

TEST_F(Ranks, AProgramThatDoesNotExist) {
  task::ShimSpec spec = ranks(3, "");
  spec.argv = {"dtrain-no-such-program"};
  const task::Exit exit = run(spec);
  EXPECT_EQ(exit.code, 127);
  EXPECT_THAT(exit.cause, HasSubstr("could not execute dtrain-no-such-program"));
}

TEST_F(Ranks, AsManyAsAreAllowed) {
  launch(ranks(limits::kRanksPerTask,
               "echo $R; [ $DTRAIN_ATTEMPT = 2 ] || [ $R != 200 ] || exit 3; [ $DTRAIN_ATTEMPT = 2 ] || exec sleep 1000"));
  EXPECT_EQ(attempt(1).rank, 201u);
  EXPECT_TRUE(attempt(2).success());
  for (const std::uint32_t rank : {0u, 100u, limits::kRanksPerTask - 1}) EXPECT_THAT(log_of(rank), HasSubstr(std::to_string(rank) + "\n"));
}

class ErrorFiles : public Ranks {
 protected:
  // Each rank runs the script with E, the path of its error file.
  task::ShimSpec recording(std::uint32_t count, const std::string& script) {
    task::ShimSpec spec = ranks(count, "E=$WHERE; " + script);
    spec.error_file = "WHERE";
    return spec;
  }
  static std::string say(const std::string& message, const std::string& seconds) {
    return R"(echo '{"message": {"message": "')" + message + R"('", "extraInfo": {"py_callstack": "of '$R'", "timestamp": "')" + seconds +
           R"('"}}}' > $E; )";
  }
};

TEST_F(ErrorFiles, EachRankOfEachAttemptHasItsOwn) {
  launch(recording(2, "echo $E"));
  attempt(1);
  attempt(2);
  const std::string errors = world_->directory(id_) + "/errors/";
  EXPECT_EQ(log_of(0), errors + "1.0\n" + errors + "2.0\n");
  EXPECT_EQ(log_of(1), errors + "1.1\n" + errors + "2.1\n");
}

TEST_F(ErrorFiles, TheEarliestNamesTheFault) {
  // Rank 2 has failed first, by its own word, and is slow to end: rank 0 ends the attempt. Rank 1 has recorded something later.
  launch(recording(3, "case $R in 2) " + say("first $R", "$(($(date +%s) - 5))") + "echo up > up2; exec sleep 1000;; 1) " +
                          say("later", "$(($(date +%s) + 5))") + "echo up > up1; exec sleep 1000;; " +
                          "0) until [ -s up1 ] && [ -s up2 ]; do sleep 0.01; done; exit 7;; esac"));
  const task::Exit exit = attempt(1);
  EXPECT_EQ(exit.code, 7);
  EXPECT_EQ(exit.rank, 1u);
  ASSERT_TRUE(exit.recorded);
  EXPECT_EQ(exit.recorded->rank, 3u);
  EXPECT_EQ(exit.recorded->message, "first 2");
  EXPECT_EQ(exit.recorded->stack, "of 2");
  EXPECT_LE(exit.recorded->at, exit.ended);
}

TEST_F(ErrorFiles, NoneOfATaskThatIsDone) {
  const task::Exit exit = run(recording(1, say("caught", "1") + "exit 0"));
  EXPECT_TRUE(exit.success());
  EXPECT_FALSE(exit.recorded);
}

TEST_F(ErrorFiles, OfATaskWithoutRanks) {
  task::ShimSpec spec = shell("E=$WHERE; " + say("alone", "1") + "exit 1");
  spec.error_file = "WHERE";
  const task::Exit exit = run(spec);
  ASSERT_TRUE(exit.recorded);
  EXPECT_EQ(exit.recorded->rank, 0u);
  EXPECT_EQ(exit.recorded->message, "alone");
}

TEST_F(ErrorFiles, TheUsersOwnVariableStays) {
  task::ShimSpec spec = recording(1, "echo $WHERE; exit 1");
  spec.env["WHERE"] = "/elsewhere";
  run(spec);
  EXPECT_EQ(log_of(0), "/elsewhere\n");
}

TEST_F(ErrorFiles, WhatLeadsElsewhereIsNotRead) {
  const std::string whole = say("elsewhere", "1");
  launch(recording(1, "case $DTRAIN_ATTEMPT in 1) E=away; " + whole + "ln -s $PWD/away $WHERE;; 2) mkfifo $E;; 3) mkdir $E;; " + "4) " +
                          whole + "head -c 70000 /dev/zero | tr '\\0' ' ' >> $E;; 5) E=${WHERE%/*}/file; " + whole +
                          "ln -s file $WHERE;; 6) " + say("here", "1") + ";; esac; exit 1"));
  for (AttemptNumber n = 1; n <= 5; ++n) EXPECT_FALSE(attempt(n).recorded) << n;
  const auto last = attempt(6).recorded;
  ASSERT_TRUE(last);
  EXPECT_EQ(last->message, "here");
}

TEST(LaunchFiles, KeepTheErrorFile) {
  LaunchFile launch;
  launch.argv = {"a"};
  EXPECT_EQ(decode_launch(*encode_launch(launch))->error_file, "");
  launch.error_file = "E=/tasks/1/errors/";
  EXPECT_EQ(decode_launch(*encode_launch(launch))->error_file, launch.error_file);
}

TEST(LaunchFiles, KeepTheVariablesOfRanks) {
  LaunchFile launch;
  launch.argv = {"a"};
  launch.ranks = {{{"RANK", "0"}, {"X", "y=z"}}, {{"RANK", "1"}, {"X", ""}}};
  const auto bytes = encode_launch(launch);
  ASSERT_TRUE(bytes);
  EXPECT_EQ(decode_launch(*bytes)->ranks, launch.ranks);
  launch.ranks[1].erase("X");
  EXPECT_FALSE(encode_launch(launch)) << "different variables";
  launch.ranks.assign(limits::kRanksPerTask + 1, {{"RANK", "0"}});
  EXPECT_FALSE(encode_launch(launch)) << "too many";
}

}  // namespace
}  // namespace dtrain::proc
