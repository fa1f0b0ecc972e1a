// Each checker of world formation notices its own broken promise and is silent about what looks alike and is
// right.
#include <gtest/gtest.h>

#include "tests/sim/formation/checkers/checkers.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::formation {
namespace {

class FakeView final : public WorldView {
 public:
  explicit FakeView(Slot slots) : disks_(slots) {
    for (Slot slot = 0; slot < slots; ++slot) disks_[slot].id = id(slot);
  }
  static MemberId id(Slot slot) { return {1, slot + 1u}; }
  core::Founding founding(std::uint64_t cluster, Slot members) const {
    core::Founding out{{cluster, cluster}, id(0), {}};
    for (Slot slot = 0; slot < members; ++slot) out.members.push_back({static_cast<core::Seat>(slot), id(slot)});
    return out;
  }
  // As the world does it: on the disk first.
  void store(Checker& checker, Slot slot, core::Persist persist) {
    const core::Record before = disks_[slot].record;
    disks_[slot].record = persist.record;
    if (persist.begin) disks_[slot].log = persist.begin;
    checker.stored(slot, before, persist);
  }
  bool broke(std::string_view invariant) const { return violation_ && violation_->invariant == invariant; }

  Slot slots() const override { return static_cast<Slot>(disks_.size()); }
  const Disk& disk(Slot slot) const override { return disks_[slot]; }
  std::string status(Slot) const override { return "waits"; }
  bool runs(Slot) const override { return true; }
  void violation(std::string_view invariant, std::string what) override {
    if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), {}};
  }

  std::vector<Disk> disks_;
  std::optional<Violation> violation_;
};

core::Record bound(const core::Founding& promise, bool started = false, std::vector<core::Founding> withdrawn = {}) {
  return {promise, started, std::move(withdrawn)};
}

TEST(NeverTwoClusters, ASecondOneWorks) {
  FakeView world(3);
  const auto checker = never_two_clusters(world);
  checker->works(world.founding(1, 3));
  checker->works(world.founding(1, 3));
  EXPECT_FALSE(world.violation_);
  checker->works(world.founding(2, 3));
  EXPECT_TRUE(world.broke("never_two_clusters"));
}

TEST(OnePromise, APromiseIsForgotten) {
  FakeView world(3);
  const auto checker = one_promise(world);
  const core::Founding first = world.founding(1, 3), second = world.founding(2, 3);
  world.store(*checker, 0, {bound(first), {}, false});
  world.store(*checker, 0, {bound(first, true), first, false});
  world.store(*checker, 0, {bound({}, false, {first}), {}, true});
  world.store(*checker, 0, {bound(second, false, {first}), {}, false});
  EXPECT_FALSE(world.violation_);
  world.store(*checker, 0, {bound({}, false, {first}), {}, false});
  EXPECT_TRUE(world.broke("one_promise"));
}

TEST(OnePromise, WhatWasWithdrawnIsPromisedAgain) {
  FakeView world(3);
  const auto checker = one_promise(world);
  const core::Founding first = world.founding(1, 3);
  world.store(*checker, 0, {bound(first), {}, false});
  world.store(*checker, 0, {bound({}, false, {first}), {}, false});
  EXPECT_FALSE(world.violation_);
  world.store(*checker, 0, {bound(first, false, {first}), {}, false});
  EXPECT_TRUE(world.broke("one_promise"));
}

TEST(SaidIsDurable, APromiseAndAClusterThatAreNotOnTheDisk) {
  for (const bool cluster : {false, true}) {
    FakeView world(3);
    const auto checker = said_is_durable(world);
    const core::Founding founding = world.founding(1, 3);
    core::FormationReport report;
    checker->said(0, report);
    world.disks_[1].record.promise = founding;
    world.disks_[1].log = founding;
    world.disks_[2].member = founding.cluster;
    report.cluster = founding.cluster;
    checker->said(2, report);
    report.promise = founding;
    checker->said(1, report);
    EXPECT_FALSE(world.violation_);
    if (!cluster) report.cluster = {};
    if (cluster) report.promise = {};
    checker->said(0, report);
    EXPECT_TRUE(world.broke("said_is_durable"));
  }
}

TEST(BeginsWithAll, OneHasNotPromised) {
  FakeView world(3);
  const auto checker = begins_with_all(world);
  const core::Founding founding = world.founding(1, 3);
  for (Slot slot = 0; slot < 2; ++slot) world.store(*checker, slot, {bound(founding), {}, false});
  EXPECT_FALSE(world.violation_);
  world.store(*checker, 0, {bound(founding, true), founding, false});
  EXPECT_TRUE(world.broke("begins_with_all"));
}

TEST(BeginsWithAll, AnotherHasItsPlaceOrTheyAreTooFew) {
  for (const bool few : {false, true}) {
    FakeView world(3);
    const auto checker = begins_with_all(world);
    core::Founding founding = world.founding(1, few ? 1 : 2);
    for (const core::Founder& founder : founding.members) world.store(*checker, founder.seat, {bound(founding), {}, false});
    const Slot who = few ? 0 : 2;
    if (!few) world.store(*checker, 0, {bound(founding, true), founding, false});
    EXPECT_FALSE(world.violation_);
    world.store(*checker, who, {bound(founding, true), founding, false});
    EXPECT_TRUE(world.broke("begins_with_all"));
  }
}

TEST(BegunIsKept, WhatWorkedIsGivenUp) {
  FakeView world(3);
  const auto checker = begun_is_kept(world);
  const core::Founding first = world.founding(1, 3), second = world.founding(2, 3);
  checker->works(first);
  world.disks_[0].record = bound(second, true);
  world.store(*checker, 0, {bound({}, false, {second}), {}, true});
  EXPECT_FALSE(world.violation_);
  world.disks_[1].record = bound(first, true);
  world.store(*checker, 1, {bound({}, false, {first}), {}, true});
  EXPECT_TRUE(world.broke("begun_is_kept"));
}

TEST(Converges, OneBelongsNowhere) {
  FakeView world(2);
  const auto checker = converges(world);
  const core::Founding founding = world.founding(1, 2);
  world.disks_[0].log = founding;
  world.disks_[1].member = founding.cluster;
  checker->works(founding);
  checker->at_rest();
  EXPECT_FALSE(world.violation_);
  world.disks_[1].member = {};
  checker->at_rest();
  EXPECT_TRUE(world.broke("converges"));
}

TEST(Converges, NoLogWorks) {
  FakeView world(1);
  const auto checker = converges(world);
  world.disks_[0].log = world.founding(1, 1);
  checker->at_rest();
  EXPECT_TRUE(world.broke("converges"));
}

}  // namespace
}  // namespace dtrain::sim::formation
