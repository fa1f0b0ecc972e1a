// Two launchers on one host: each assignment gets the one that takes it, also over the agent's death. Real shims on this host.
#include <gtest/gtest.h>

#include "agent/proc/direct_launcher.h"
#include "agent/proc/launchers.h"
#include "agent/proc/spawn_shim.h"
#include "tests/conformance/direct_world.h"

namespace dtrain::proc {
namespace {

using conformance::DirectWorld;

constexpr const char* kBox = "IN_A_BOX";  // a variable of the tasks that the second launcher takes

struct Seen {
  std::vector<std::string> launched, came_up, given_up;
  bool room = true;
};

// Starts shims like the direct launcher, without control groups.
class BoxLauncher final : public Launcher {
 public:
  BoxLauncher(std::string shim_path, Seen& seen) : shim_path_(std::move(shim_path)), seen_(seen) {}
  bool takes(const task::ShimSpec& spec) const override { return spec.env.count(kBox) != 0; }
  bool started(const LaunchFile& launch) const override { return launch.env.count(kBox) != 0; }
  bool has_room() const override { return seen_.room; }
  Status place(const task::ShimSpec&, const std::string&, LaunchFile&) override { return {}; }
  Result<UniqueFd> launch(const task::ShimSpec& spec, const std::string& directory, const LaunchFile&, UniqueFd theirs) override {
    seen_.launched.push_back(spec.id.text());
    return spawn_shim(shim_path_, directory, "", std::move(theirs));
  }
  void settled(const LaunchFile& launch, int pid) override { (pid != 0 ? seen_.came_up : seen_.given_up).push_back(launch.env.at(kBox)); }

 private:
  const std::string shim_path_;
  Seen& seen_;
};

class LaunchersTest : public ::testing::Test {
 protected:
  LaunchersTest() {
    DirectWorld::Options options;
    options.launchers = {[this](const RunnerOptions& host, Epoll&, std::uint64_t) -> Result<std::unique_ptr<Launcher>> {
                           return std::make_unique<BoxLauncher>(host.shim_path, seen_);
                         },
                         direct_launcher};
    world_ = std::make_unique<DirectWorld>(options);
  }
  // None may be left when the launchers are looked at.
  ~LaunchersTest() override {
    for (const std::uint32_t index : {0u, 1u}) world_->runner().end(id(index));
    EXPECT_TRUE(pump([this] { return count<node::ShimGone>() >= 2; }));
  }
  static AssignmentId id(std::uint32_t index) { return {3, 2, {"worker", index}}; }
  task::ShimSpec plain(std::uint32_t index) const { return world_->command(id(index), {"sleep", "1000"}); }
  task::ShimSpec boxed(std::uint32_t index) const {
    task::ShimSpec spec = plain(index);
    spec.env[kBox] = spec.id.text();
    return spec;
  }
  template <class E>
  std::ptrdiff_t count() const {
    return std::count_if(events_.begin(), events_.end(), [](const node::Event& event) { return std::holds_alternative<E>(event); });
  }
  bool pump(const std::function<bool()>& condition) {
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    return world_->pump(sink, condition);
  }

  Seen seen_;
  std::unique_ptr<DirectWorld> world_;
  std::vector<node::Event> events_;
};

using Texts = std::vector<std::string>;

TEST_F(LaunchersTest, EachAssignmentIsLaunchedByTheFirstThatTakesIt) {
  world_->runner().launch(boxed(0));
  world_->runner().launch(plain(1));
  ASSERT_TRUE(pump([this] { return count<node::ShimUp>() == 2; }));
  for (const node::Event& event : events_) {
    const auto* up = std::get_if<node::ShimUp>(&event);
    EXPECT_TRUE(up == nullptr || up->result);
  }
  EXPECT_EQ(seen_.launched, Texts{id(0).text()});
  EXPECT_EQ(seen_.came_up, Texts{id(0).text()});
}

TEST_F(LaunchersTest, NoneWaitsForAnothersShims) {
  seen_.room = false;
  world_->runner().launch(boxed(0));
  world_->runner().launch(plain(1));
  ASSERT_TRUE(pump([this] { return count<node::ShimUp>() == 1; }));
  EXPECT_EQ(seen_.launched, Texts{});
  seen_.room = true;
  ASSERT_TRUE(pump([this] { return count<node::ShimUp>() == 2; }));
  EXPECT_EQ(seen_.launched, Texts{id(0).text()});
}

TEST_F(LaunchersTest, AShimThatWasStartedForAnotherLaunchersTaskIsNotUsed) {
  world_->runner().launch(plain(1));
  ASSERT_TRUE(pump([this] { return count<node::ShimUp>() == 1; }));
  world_->runner().end(id(1));  // its shim stays as a spare one
  ASSERT_TRUE(pump([this] { return count<node::ShimGone>() == 1; }));
  world_->runner().launch(boxed(0));
  ASSERT_TRUE(pump([this] { return count<node::ShimUp>() == 2; }));
  EXPECT_EQ(seen_.launched, Texts{id(0).text()});
}

TEST_F(LaunchersTest, ALauncherHearsOfWhatItStartedForAnEarlierAgent) {
  world_->runner().launch(boxed(0));
  world_->runner().launch(plain(1));
  ASSERT_TRUE(pump([this] { return count<node::ShimUp>() == 2; }));
  world_->agent_dies();
  for (const std::uint32_t index : {0u, 1u}) {
    world_->shim_dies(id(index));
    std::filesystem::remove(world_->directory(id(index)) + "/state");  // as if it had died before it could write anything
    std::filesystem::remove(world_->directory(id(index)) + "/exit");
  }
  world_->agent_returns();
  ASSERT_EQ(world_->runner().list().size(), 2u);
  EXPECT_EQ(seen_.given_up, Texts{id(0).text()});
}

TEST_F(LaunchersTest, WhatNoneTakesIsRefused) {
  Launchers launchers;
  launchers.add(std::make_unique<BoxLauncher>("", seen_));
  const Status waits = launchers.wait(plain(1));
  ASSERT_FALSE(waits);
  EXPECT_EQ(waits.error().code, ErrorCode::unavailable);
  EXPECT_FALSE(launchers.can_launch());
  EXPECT_EQ(launchers.that_started(LaunchFile{}), nullptr);
}

}  // namespace
}  // namespace dtrain::proc
