#include "common/cluster/restore.h"

#include <gtest/gtest.h>

namespace dtrain::cluster {
namespace {

using Kind = RestoreChoice::Step::Kind;

transfer::CheckpointInfo checkpoint(std::int64_t step, bool complete = true) {
  transfer::CheckpointInfo i;
  i.path = "/c/ckpt-" + std::to_string(step);
  i.step = step;
  i.complete = complete;
  i.defect = complete ? "" : "file missing";
  i.digest = "d" + std::to_string(step);
  return i;
}

JobRecord job_with(Generation generation) {
  JobRecord j;
  j.spec.name = "j";
  j.spec.checkpoint = job::CheckpointSpec{};
  j.spec.checkpoint->dir = "/c";
  j.generation = generation;
  return j;
}

std::vector<RestoreChoice::Found> on(const NodeId& host, std::vector<transfer::CheckpointInfo> list) { return {{host, std::move(list)}}; }

CheckpointRecord known(std::int64_t step, Generation generation, std::vector<NodeId> hosts) {
  CheckpointRecord r;
  r.info = checkpoint(step);
  r.generation = generation;
  r.state = CheckpointState::verified;
  for (const NodeId& host : hosts) r.places.push_back({host, 0});
  return r;
}

TEST(RestoreChoice, NoneEverCommittedStartsFromScratch) {
  RestoreChoice c(job_with(1), {});
  EXPECT_EQ(c.step().kind, Kind::scan);
  c.scanned(on("h1", {}), {}, false);
  EXPECT_EQ(c.step().kind, Kind::nothing);
}

TEST(RestoreChoice, TheNewestThatVerifies) {
  RestoreChoice c(job_with(1), {});
  c.scanned(on("h1", {checkpoint(30), checkpoint(20)}), {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 30);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.info.step, 30);
}

TEST(RestoreChoice, ADamagedOneIsQuarantinedAndTheOneBeforeTaken) {
  RestoreChoice c(job_with(1), {});
  c.scanned(on("h1", {checkpoint(40, false), checkpoint(30), checkpoint(20)}), {}, false);
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_TRUE(c.step().damaged);
  EXPECT_EQ(c.step().at.info.step, 40);
  c.quarantined();
  ASSERT_EQ(c.step().kind, Kind::verify);
  c.verified(fail(ErrorCode::damaged, "hash differs"));
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_EQ(c.step().at.info.step, 30);
  c.quarantined();
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.info.step, 20);
}

TEST(RestoreChoice, WhatCannotBeReadIsPassedOverAndStays) {
  RestoreChoice c(job_with(2), {});
  c.scanned(on("h1", {checkpoint(30), checkpoint(20)}), {}, false);
  c.verified(fail(ErrorCode::io, "Input/output error"));
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 20);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.info.step, 20);
  EXPECT_EQ(c.step().reason, "newest that verifies; /c/ckpt-30 cannot be read: Input/output error");
  RestoreChoice only(job_with(0), {});
  only.scanned(on("h1", {checkpoint(30)}), {}, false);
  only.verified(fail(ErrorCode::io, "Input/output error"));
  EXPECT_EQ(only.step().kind, Kind::blocked) << "it is not begun from scratch";
}

TEST(RestoreChoice, OnceCommittedNoneLeftBlocks) {
  JobRecord j = job_with(2);
  j.committed_once = true;
  RestoreChoice c(j, {});
  c.scanned(on("h1", {}), {}, false);
  EXPECT_EQ(c.step().kind, Kind::blocked);
  j.from_scratch = true;
  RestoreChoice asked(j, {});
  asked.scanned(on("h1", {checkpoint(10)}), {}, false);
  ASSERT_EQ(asked.step().kind, Kind::quarantine) << "what the given-up branch wrote must not be found later";
  EXPECT_FALSE(asked.step().damaged);
  asked.quarantined();
  EXPECT_EQ(asked.step().kind, Kind::nothing);
}

TEST(RestoreChoice, TwoFruitlessRestoresTakeTheOneBeforeAndQuarantineTheBranch) {
  JobRecord j = job_with(3);
  j.restored = job::Restore{"/c/ckpt-30", 30};
  j.restored_digest = "d30";
  j.fruitless_restores = kFruitlessRestores;
  RestoreChoice c(j, {});
  c.scanned(on("h1", {checkpoint(30), checkpoint(20)}), {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 20);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_EQ(c.step().at.info.step, 30);
  c.quarantined();
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.info.step, 20);
}

TEST(RestoreChoice, FruitlessButALaterOneVerifiesIsProgress) {
  JobRecord j = job_with(3);
  j.restored = job::Restore{"/c/ckpt-30", 30};
  j.fruitless_restores = kFruitlessRestores;
  RestoreChoice c(j, {});
  c.scanned(on("h1", {checkpoint(35), checkpoint(30)}), {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 35);
  c.verified({});
  EXPECT_EQ(c.step().kind, Kind::chosen);
}

TEST(RestoreChoice, FruitlessWithNothingOlderTakesTheSameOnceMore) {
  JobRecord j = job_with(3);
  j.restored = job::Restore{"/c/ckpt-30", 30};
  j.fruitless_restores = kFruitlessRestores;
  RestoreChoice c(j, {});
  c.scanned(on("h1", {checkpoint(30)}), {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.info.step, 30);
}

TEST(RestoreChoice, AnAskedForPathIsFoundInItsParentToo) {
  JobRecord j = job_with(0);
  j.spec.checkpoint->restore = "/other/model.ckpt-9";
  RestoreChoice c(j, {});
  EXPECT_TRUE(c.pinned());
  c.scanned(on("h1", {}), {}, false);
  ASSERT_EQ(c.step().kind, Kind::scan_parent);
  auto other = checkpoint(10), wanted = checkpoint(9);
  wanted.path = "/other/model.ckpt-9";
  c.scanned(on("h1", {other, wanted}), {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.info.path, wanted.path);
}

TEST(RestoreChoice, AnAskedForPathThatDoesNotVerifyBlocks) {
  JobRecord j = job_with(0);
  j.spec.checkpoint->restore = "/other/x";
  RestoreChoice c(j, {});
  c.scanned(on("h1", {}), {}, false);
  c.scanned(on("h1", {}), {}, false);
  EXPECT_EQ(c.step().kind, Kind::blocked);
}

// ---------------------------------------------------------------- several hosts

TEST(RestoreChoice, HostsThatSeeOneDirectoryShareACandidate) {
  RestoreChoice c(job_with(1), {});
  auto here = checkpoint(30), copy = checkpoint(30);
  here.place = 7;
  copy.place = 8;
  c.scanned({{"h1", {here}}, {"h2", {here}}, {"h3", {copy}}}, {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.hosts, (std::vector<NodeId>{"h1", "h2"}));
  c.verified(fail(ErrorCode::damaged, "hash differs"));
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  c.quarantined();
  ASSERT_EQ(c.step().kind, Kind::verify) << "the copy has bytes of its own";
  EXPECT_EQ(c.step().at.hosts, std::vector<NodeId>{"h3"});
  c.verified({});
  EXPECT_EQ(c.step().kind, Kind::chosen);
}

TEST(RestoreChoice, ANewerOneOnAHostThatIsAwayIsAwaitedThenGivenUp) {
  JobRecord j = job_with(2);
  j.committed_once = true;
  j.checkpoints = {known(30, 2, {"h1"}), known(50, 2, {"h2"})};
  RestoreChoice waits(j, {});
  waits.scanned(on("h1", {checkpoint(30)}), {"h2"}, false);
  ASSERT_EQ(waits.step().kind, Kind::wait);
  EXPECT_EQ(waits.step().newest->step, 50);
  EXPECT_EQ(waits.step().newest->hosts, std::vector<NodeId>{"h2"});
  EXPECT_EQ(waits.step().older, 30);
  RestoreChoice waited(j, {});
  waited.scanned(on("h1", {checkpoint(30)}), {"h2"}, true);
  ASSERT_EQ(waited.step().kind, Kind::verify);
  waited.verified({});
  ASSERT_EQ(waited.step().kind, Kind::chosen);
  EXPECT_EQ(waited.step().at.info.step, 30);
  EXPECT_EQ(waited.step().newest->step, 50) << "what is given up is named";
  RestoreChoice gone(j, {});
  gone.scanned(on("h1", {checkpoint(30)}), {}, false);
  EXPECT_EQ(gone.step().kind, Kind::verify) << "it will not come back";
}

TEST(RestoreChoice, WhereNoneIsLeftAHostThatIsAwayIsAwaitedForEver) {
  JobRecord j = job_with(2);
  j.committed_once = true;
  j.checkpoints = {known(50, 2, {"h2"})};
  RestoreChoice c(j, {});
  c.scanned(on("h1", {}), {"h2"}, true);
  ASSERT_EQ(c.step().kind, Kind::wait);
  EXPECT_EQ(c.step().older, -1);
}

TEST(RestoreChoice, ABranchThatWasLeftBehindIsSetAsideHoweverLargeItsStep) {
  JobRecord j = job_with(3);
  j.committed_once = true;
  j.checkpoints = {known(30, 1, {"h1"}), known(90, 1, {"h2"}), known(40, 2, {"h1"})};
  j.lineage = {{2, 30}, {3, 40}};
  RestoreChoice c(j, {});
  c.scanned({{"h1", {checkpoint(40), checkpoint(30)}}, {"h2", {checkpoint(90)}}}, {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 40);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_EQ(c.step().at.info.step, 90);
  EXPECT_EQ(c.step().at.hosts, std::vector<NodeId>{"h2"});
  EXPECT_FALSE(c.step().damaged);
  c.quarantined();
  EXPECT_EQ(c.step().kind, Kind::chosen);
  RestoreChoice away(j, {});
  away.scanned(on("h1", {checkpoint(40)}), {"h2"}, false);
  EXPECT_EQ(away.step().kind, Kind::verify) << "nor is it waited for";
}

// Three hosts, seed 3440: none was known when the generation was placed, it failed before it began, a host that was away is back.
TEST(RestoreChoice, WhatWasUnknownToOneThatNeverBeganIsTaken) {
  JobRecord j = job_with(1);
  j.lineage = {{1, -1}};
  j.ran = {{"h2", 1}};
  RestoreChoice began(j, {});
  began.scanned({{"h1", {checkpoint(90)}}, {"h2", {}}}, {}, false);
  EXPECT_EQ(began.step().kind, Kind::nothing);
  j.unbegun = true;
  RestoreChoice c(j, {});
  c.scanned({{"h1", {checkpoint(90)}}, {"h2", {}}}, {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 90);
}

TEST(RestoreChoice, WhatTheLedgerDoesNotKnowIsAsOldAsWhatRanOnItsHost) {
  JobRecord j = job_with(3);
  j.committed_once = true;
  j.checkpoints = {known(40, 2, {"h1"})};
  j.lineage = {{2, 30}, {3, 40}};
  j.ran = {{"h1", 3}, {"h2", 1}};
  RestoreChoice own(j, {});
  own.scanned({{"h1", {checkpoint(40)}}, {"h2", {checkpoint(90)}}}, {}, false);
  EXPECT_EQ(own.step().at.info.step, 40) << "h1 does not see it: it is of generation 1";
  auto both = checkpoint(90);
  both.place = 7;
  RestoreChoice shared(j, {});
  shared.scanned({{"h1", {both, checkpoint(40)}}, {"h2", {both}}}, {}, false);
  EXPECT_EQ(shared.step().at.info.step, 90) << "h1 may have written it";
  RestoreChoice alone(j, {});
  alone.scanned(on("h2", {checkpoint(90)}), {"h1"}, false);
  EXPECT_EQ(alone.step().at.info.step, 90) << "nobody says that h1 did not write it";
  // Seed 431 of three hosts: h1 wrote on a disk of its own, and is away.
  j.checkpoints.push_back(known(50, 3, {"h1"}));
  RestoreChoice beside(j, {});
  beside.scanned(on("h2", {checkpoint(90), checkpoint(20)}), {"h1"}, true);
  EXPECT_EQ(beside.step().at.info.step, 20) << "where 50 is not, generation 3 did not write";
}

TEST(RestoreChoice, OtherHostsAreAskedWhereTheNewestIsMissing) {
  JobRecord j = job_with(2);
  j.checkpoints = {known(30, 2, {"h1"}), known(50, 2, {"h2"})};
  const RestoreChoice c(j, {});
  EXPECT_TRUE(c.lacks_newest(on("h1", {checkpoint(30)})));
  EXPECT_FALSE(c.lacks_newest(on("h3", {checkpoint(50)})));
  EXPECT_TRUE(c.lacks_newest(on("h3", {checkpoint(50, false)})));
  EXPECT_TRUE(RestoreChoice(job_with(1), {}).lacks_newest(on("h1", {}))) << "nothing at all";
}

}  // namespace
}  // namespace dtrain::cluster
