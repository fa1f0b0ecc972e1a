// Each checker of world lease notices its own broken promise and is silent about what looks alike and is right.
#include <gtest/gtest.h>

#include <optional>

#include "tests/sim/lease/checkers/checkers.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::lease {
namespace {

class FakeView final : public WorldView {
 public:
  bool broke(std::string_view invariant) const { return violation_ && violation_->invariant == invariant; }
  Instant now() const override { return now_; }
  void violation(std::string_view invariant, std::string what) override {
    if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), {}};
  }
  Instant now_{};
  std::optional<Violation> violation_;
};

constexpr Instance kOld{1, 0, 1, 3}, kNew{2, 0, 2, 4}, kOtherTask{3, 1, 1, 4};

TEST(NeverTwo, TwoOfOneTask) {
  FakeView world;
  const auto checker = never_two(world);
  checker->executing(kOld, true, false);
  checker->executing(kOtherTask, true, false);
  checker->executing(kOld, false, false);
  checker->executing(kNew, true, false);
  EXPECT_FALSE(world.violation_);
  checker->executing(kOld, true, false);
  EXPECT_TRUE(world.broke("never_two"));
}

TEST(NeverTwo, AnExcuseEnds) {
  FakeView world;
  const auto checker = never_two(world);
  checker->executing(kNew, true, false);
  checker->executing(kOld, true, true);
  EXPECT_FALSE(world.violation_);
  checker->excuse_over(kOld);
  EXPECT_TRUE(world.broke("never_two"));
}

TEST(NotFrozenForEver, OneStandsOrDoesNotRun) {
  for (const bool stands : {false, true}) {
    FakeView world;
    const auto checker = not_frozen_for_ever(world);
    checker->executing(kOld, true, false);
    checker->executing(kOtherTask, true, false);
    checker->at_rest({});
    EXPECT_FALSE(world.violation_);
    if (!stands) checker->executing(kOld, false, false);
    checker->at_rest(stands ? std::vector<Instance>{kNew} : std::vector<Instance>{});
    EXPECT_TRUE(world.broke("not_frozen_for_ever"));
  }
}

TEST(SuccessorInTime, TooSoonTooLateOrNever) {
  const auto ends = [](std::optional<Duration> at) {
    FakeView world;
    const auto checker = successor_in_time(world);
    checker->lost_for_good(0, Instant{} + 5s, Instant{} + 9s);
    checker->executing(kOtherTask, true, false);
    checker->executing(kOld, false, false);
    if (at) {
      world.now_ = Instant{} + *at;
      checker->executing(kNew, true, false);
    }
    checker->over();
    return world.broke("successor_in_time");
  };
  EXPECT_FALSE(ends(5s));
  EXPECT_FALSE(ends(9s));
  EXPECT_TRUE(ends(4s));
  EXPECT_TRUE(ends(10s));
  EXPECT_TRUE(ends({}));
}

TEST(AnswersAreOfTheNewest, AHostOrAShimGoesBack) {
  for (const bool host : {false, true}) {
    FakeView world;
    const auto checker = answers_are_of_the_newest(world);
    checker->passed_on(kOld, 5, 4);
    checker->passed_on(kOld, 5, 5);
    checker->answer_taken(kOld, 2);
    checker->answer_taken(kOld, 2);
    checker->answer_taken(kNew, 1);
    EXPECT_FALSE(world.violation_);
    host ? checker->passed_on(kOld, 4, 5) : checker->answer_taken(kOld, 1);
    EXPECT_TRUE(world.broke("answers_are_of_the_newest"));
  }
}

TEST(GrantIsFresh, WhatWasAskedForBeforeLetsItRun) {
  FakeView world;
  const auto checker = grant_is_fresh(world);
  checker->let_run(kOld, Instant{} + 2s, Instant{} + 2s);
  EXPECT_FALSE(world.violation_);
  checker->let_run(kOld, Instant{} + 1s, Instant{} + 2s);
  EXPECT_TRUE(world.broke("grant_is_fresh"));
}

}  // namespace
}  // namespace dtrain::sim::lease
