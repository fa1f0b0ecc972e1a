// What keeps tasks from being started, as the coordinator sees it: other hosts, then waiting, and an end only where no host can do it. And
// a host whose disk is nearly full.
#include <gmock/gmock.h>

#include "common/node/disk_room.h"
#include "tests/unit/node/working_town.h"

namespace dtrain::node {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StartsTest : public WorkingTown {
 protected:
  // Answers every staging itself; what it has no answer for is staged.
  void stage(std::function<std::optional<Error>(House&)> answer) {
    for (int turn = 0; turn < 400; ++turn) {
      for (House* house : houses)
        for (std::size_t& next = done[house]; next < house->effects.size(); ++next) {
          const Effect effect = house->effects[next];
          const auto* stage = std::get_if<Stage>(&effect);
          const auto refused = stage == nullptr ? std::nullopt : answer(*house);
          if (refused) house->give(Staged{stage->id, fail(*refused)});
          else act(*house, effect);
        }
      town.run_for(50ms);
    }
  }
};

TEST_F(StartsTest, WhatOneHostLacksAnotherHas) {
  submit(generic("j", 1));
  stage([&](House& house) -> std::optional<Error> {
    if (&house == houses[2]) return std::nullopt;
    return Error{ErrorCode::not_found, "could not stage worker-0: working directory /x does not exist", "create it"};
  });
  EXPECT_EQ(described("j").job.state, "Running") << described("j").job.reason;
  EXPECT_EQ(tasks("j").at("worker-0").node, "n3");
  EXPECT_EQ(described("j").job.restarts, 0u);
}

TEST_F(StartsTest, WhatNoHostHasFailsTheJobWithTheReason) {
  submit(generic("j", 1));
  stage([](House&) { return Error{ErrorCode::not_found, "could not stage worker-0: working directory /x does not exist", "create it"}; });
  EXPECT_EQ(described("j").job.state, "Failed");
  EXPECT_EQ(described("j").job.reason, "could not stage worker-0: working directory /x does not exist; create it");
}

TEST_F(StartsTest, WhatIsSoForTheMomentIsWaitedForEverywhere) {
  submit(generic("j", 1));
  bool held = true;
  const auto port = [&](House&) -> std::optional<Error> {
    if (!held) return std::nullopt;
    return Error{ErrorCode::unavailable, "could not stage worker-0: port 20000 is used by pid 7 (nginx)", "stop it"};
  };
  stage(port);
  EXPECT_EQ(described("j").job.state, "Pending");
  EXPECT_THAT(described("j").waiting_for, HasSubstr("port 20000 is used by pid 7 (nginx)"));
  held = false;
  for (int i = 0; i < 20 && described("j").job.state != "Running"; ++i) stage(port);
  EXPECT_EQ(described("j").job.state, "Running");
}

TEST(DiskRoom, BelowWhatIsKeptTheHostTakesNothingUntilATenthMoreIsFree) {
  DiskRoom room(KeepFree{10, 0});
  EXPECT_FALSE(room.looked({"/data", 100 << 20, 1000 << 20}));
  EXPECT_THAT(room.reason(), IsEmpty());
  EXPECT_TRUE(room.looked({"/data", 99 << 20, 1000 << 20}));
  EXPECT_THAT(room.reason(), AllOf(HasSubstr("/data has 99 MiB free"), HasSubstr("100 MiB are kept (storage.minFree)")));
  EXPECT_FALSE(room.looked({"/data", 50 << 20, 1000 << 20}));
  EXPECT_THAT(room.reason(), HasSubstr("99 MiB")) << "a figure that moves is no news";
  EXPECT_FALSE(room.looked({"/work", 0, 1000 << 20}));
  EXPECT_FALSE(room.looked({"/data", 105 << 20, 1000 << 20}));
  EXPECT_FALSE(room.looked({"/data", 110 << 20, 1000 << 20}));
  EXPECT_THAT(room.reason(), HasSubstr("/work has 0 MiB free"));
  EXPECT_TRUE(room.looked({"/work", 110 << 20, 1000 << 20}));
  EXPECT_THAT(room.reason(), IsEmpty());
}

TEST(DiskRoom, OrSoManyBytesOfIt) {
  EXPECT_EQ((KeepFree{5, 0}).of(1000), 50u);
  EXPECT_EQ((KeepFree{5, 7}).of(1000), 7u);
  EXPECT_EQ((KeepFree{0, 0}).of(1000), 0u);
}

}  // namespace
}  // namespace dtrain::node
