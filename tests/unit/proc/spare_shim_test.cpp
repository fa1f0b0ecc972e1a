// Shims that serve one assignment after another. Real processes on this host.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "agent/base/small_file.h"
#include "agent/dtrain-shim/protocol.h"
#include "agent/proc/spare_shims.h"
#include "tests/conformance/direct_world.h"
#include "tests/unit/proc/processes.h"

namespace dtrain::proc {
namespace {

using conformance::DirectWorld;

class SpareShimTest : public ::testing::Test {
 protected:
  template <class E>
  const E* last() const {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event)
      if (const auto* found = std::get_if<E>(&*event)) return found;
    return nullptr;
  }
  bool pump(const std::function<bool()>& condition) {
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    return world_.pump(sink, condition);
  }
  template <class E>
  bool until() {
    return pump([this] { return last<E>() != nullptr; });
  }
  void launch(const task::ShimSpec& spec) {
    events_.clear();
    world_.runner().launch(spec);
    ASSERT_TRUE(until<node::ShimUp>());
    ASSERT_TRUE(last<node::ShimUp>()->result) << last<node::ShimUp>()->result.error().text();
  }
  void end(const AssignmentId& id) {
    events_.clear();
    world_.runner().end(id);
    ASSERT_TRUE(until<node::ShimGone>());
  }
  // From its launch to its end.
  task::Exit run(const task::ShimSpec& spec) {
    launch(spec);
    world_.runner().start(spec.id, 1);
    EXPECT_TRUE(until<node::AttemptExited>());
    const auto* exited = last<node::AttemptExited>();
    const task::Exit exit = exited != nullptr ? exited->exit : task::Exit{};
    end(spec.id);
    return exit;
  }
  task::ShimSpec shell(std::uint32_t index, const std::string& script) const {
    return world_.command({3, 2, {"worker", index}}, {"sh", "-c", script});
  }
  std::string output(std::uint32_t index) const {
    return read_small_file(world_.directory({3, 2, {"worker", index}}) + "/log.0", 64 << 20).value_or("");
  }
  static std::vector<pid_t> shims() {
    std::vector<pid_t> found = testing::children_of(::getpid());
    std::erase_if(found,
                  [](pid_t pid) { return read_small_file("/proc/" + std::to_string(pid) + "/comm").value_or("") != "dtrain-shim\n"; });
    return found;
  }

  DirectWorld world_;
  std::vector<node::Event> events_;
};

TEST_F(SpareShimTest, AShimServesOneAssignmentAfterAnother) {
  EXPECT_EQ(run(shell(1, "echo one; echo a secret >&2; exit 3")).code, 3);
  const std::vector<pid_t> first = shims();
  ASSERT_EQ(first.size(), 1u);
  const task::Exit exit =
      run(shell(2, "echo $PPID; tr '\\0' ' ' < /proc/$PPID/cmdline; echo; ls -l /proc/$PPID/fd /proc/$PPID/cwd; exit 4"));
  EXPECT_EQ(exit.code, 4);
  EXPECT_EQ(exit.stderr_tail, "");
  EXPECT_EQ(shims(), first);
  EXPECT_EQ(output(1), "one\na secret\n");
  const std::string seen = output(2);
  EXPECT_TRUE(seen.starts_with(std::to_string(first.front()) + "\ndtrain-shim " + world_.directory({3, 2, {"worker", 2}}))) << seen;
  EXPECT_EQ(seen.find("worker-1"), std::string::npos) << "nothing of the first is open: " << seen;
  EXPECT_EQ(read_small_file(world_.directory({3, 2, {"worker", 1}}) + "/shim.sock"), std::nullopt);
}

TEST_F(SpareShimTest, NothingOfALongerLaunchFileIsLeft) {
  task::ShimSpec longer = shell(1, "exit 0");
  for (int i = 0; i < 100; ++i) longer.argv.push_back(std::string(50, 'x'));
  for (int i = 0; i < 50; ++i) longer.env["A_VARIABLE_" + std::to_string(i)] = std::string(50, 'y');
  run(longer);
  const std::vector<pid_t> first = shims();
  task::ShimSpec shorter = shell(2, "");
  shorter.argv = {"env"};
  shorter.env.emplace("DTRAIN_ATTEMPT", "own");
  shorter.env.emplace("NOTIFY_SOCKET", "own");
  EXPECT_EQ(run(shorter).code, 0);
  EXPECT_EQ(shims(), first);
  const std::string seen = output(2);
  EXPECT_EQ(seen.find("A_VARIABLE"), std::string::npos) << seen;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), '\n'), 4 + 4) << "its own, and HOME, SHELL, USER and LOGNAME: " << seen;
}

TEST_F(SpareShimTest, AnAttemptsChildrenAreFoundByTheShimThatComesAgain) {
  run(shell(1, "true"));
  const std::vector<pid_t> first = shims();
  EXPECT_EQ(run(shell(2, "setsid sleep 1000 & kill -9 $$")).signal, SIGKILL);
  EXPECT_EQ(world_.processes({3, 2, {"worker", 2}}), 0);
  EXPECT_EQ(run(shell(3, "exit 5")).code, 5) << "its cgroup was killed, the next one's not";
  EXPECT_EQ(shims(), first);
}

TEST_F(SpareShimTest, OneThatWasKilledIsDoneWithout) {
  run(shell(1, "true"));
  const std::vector<pid_t> first = shims();
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(::kill(first.front(), SIGKILL), 0);
  ASSERT_TRUE(testing::dies(first.front()));
  EXPECT_EQ(run(shell(2, "exit 4")).code, 4);
  EXPECT_NE(shims(), first);
}

TEST_F(SpareShimTest, OneThatNobodyNeedsEndsAndIsReaped) {
  run(shell(1, "true"));
  const std::vector<pid_t> first = shims();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(pump([&] { return ::kill(first.front(), 0) != 0; })) << "a zombie would still be there";
  EXPECT_EQ(run(shell(2, "exit 4")).code, 4);
}

TEST_F(SpareShimTest, OneThatIsStoppedEndsAllTheSame) {
  run(shell(1, "true"));
  const std::vector<pid_t> first = shims();
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(::kill(first.front(), SIGSTOP), 0);
  EXPECT_TRUE(pump([&] { return ::kill(first.front(), 0) != 0; }));
  ::kill(first.front(), SIGKILL);
}

TEST_F(SpareShimTest, OneEndsWithItsAgentAndWithItsHost) {
  run(shell(1, "true"));
  const std::vector<pid_t> first = shims();
  ASSERT_EQ(first.size(), 1u);
  ::kill(first.front(), SIGTERM);
  EXPECT_TRUE(testing::dies(first.front()));
  run(shell(2, "true"));
  const std::vector<pid_t> second = shims();
  ASSERT_EQ(second.size(), 1u);
  world_.agent_dies();
  EXPECT_TRUE(testing::dies(second.front()));
}

TEST_F(SpareShimTest, WhatWouldFollowAShimKeepsItFromStaying) {
  task::ShimSpec lengthy = shell(1, "exit 0");
  lengthy.argv.push_back(std::string(100'000, 'x'));  // beyond the room that every shim has
  run(lengthy);
  const std::vector<pid_t> of_lengthy = shims();
  task::ShimSpec leased = shell(2, "exit 0");
  leased.lease = 10s;
  launch(leased);
  end(leased.id);
  const std::vector<pid_t> of_leased = shims();
  EXPECT_TRUE(of_lengthy.empty());
  EXPECT_TRUE(of_leased.empty());
}

// Jobs' numbers grow, roles have other names.
TEST_F(SpareShimTest, APathMayBeSomewhatLonger) {
  run(shell(1, "true"));
  const std::vector<pid_t> first = shims();
  const std::string longest = "worker" + std::string(shim::kPathRoom, 'x');
  std::uint32_t index = 1;
  for (const std::string& role : {std::string("worker"), longest, std::string("ps"), longest}) {
    const task::ShimSpec spec = world_.command({4, 2, {role, ++index}}, {"sh", "-c", "tr '\\0' ' ' < /proc/$PPID/cmdline; exit 5"});
    EXPECT_EQ(run(spec).code, 5);
    const std::string seen = read_small_file(world_.directory(spec.id) + "/log.0", 64 << 20).value_or("");
    EXPECT_EQ(seen.substr(0, seen.find_last_not_of(' ') + 1), "dtrain-shim " + world_.directory(spec.id));
  }
  EXPECT_EQ(shims(), first);
}

TEST_F(SpareShimTest, APathThatIsLongerIsAnothersShim) {
  run(shell(1, "true"));
  const std::vector<pid_t> first = shims();
  EXPECT_EQ(run(world_.command({3, 2, {"worker" + std::string(shim::kPathRoom + 1, 'x'), 1}}, {"sh", "-c", "exit 4"})).code, 4);
  EXPECT_NE(shims(), first);
}

TEST_F(SpareShimTest, NoMoreAreKeptThanTheirLimit) {
  constexpr std::uint32_t kMore = kSpareShims + 3;
  for (std::uint32_t i = 0; i < kMore; ++i) launch(shell(100 + i, "true"));
  EXPECT_EQ(shims().size(), kMore);
  events_.clear();
  for (std::uint32_t i = 0; i < kMore; ++i) world_.runner().end({3, 2, {"worker", 100 + i}});
  EXPECT_TRUE(pump([&] { return events_.size() >= kMore && shims().size() <= kSpareShims; }));
}

}  // namespace
}  // namespace dtrain::proc
