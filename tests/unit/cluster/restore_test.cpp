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

TEST(RestoreChoice, NoneEverCommittedStartsFromScratch) {
  RestoreChoice c(job_with(1), false);
  EXPECT_EQ(c.step().kind, Kind::scan);
  c.scanned({});
  EXPECT_EQ(c.step().kind, Kind::nothing);
}

TEST(RestoreChoice, TheNewestThatVerifies) {
  RestoreChoice c(job_with(1), false);
  c.scanned({checkpoint(30), checkpoint(20)});
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().info.step, 30);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().info.step, 30);
}

TEST(RestoreChoice, ADamagedOneIsQuarantinedAndTheOneBeforeTaken) {
  RestoreChoice c(job_with(1), false);
  c.scanned({checkpoint(40, false), checkpoint(30), checkpoint(20)});
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_TRUE(c.step().damaged);
  EXPECT_EQ(c.step().info.step, 40);
  c.quarantined();
  ASSERT_EQ(c.step().kind, Kind::verify);
  c.verified(fail(ErrorCode::damaged, "hash differs"));
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_EQ(c.step().info.step, 30);
  c.quarantined();
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().info.step, 20);
}

TEST(RestoreChoice, OnceCommittedNoneLeftBlocks) {
  JobRecord j = job_with(2);
  j.committed_once = true;
  RestoreChoice c(j, false);
  c.scanned({});
  EXPECT_EQ(c.step().kind, Kind::blocked);
  j.from_scratch = true;
  RestoreChoice asked(j, false);
  asked.scanned({checkpoint(10)});
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
  RestoreChoice c(j, false);
  c.scanned({checkpoint(30), checkpoint(20)});
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().info.step, 20);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_EQ(c.step().info.step, 30);
  c.quarantined();
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().info.step, 20);
}

TEST(RestoreChoice, FruitlessButALaterOneVerifiesIsProgress) {
  JobRecord j = job_with(3);
  j.restored = job::Restore{"/c/ckpt-30", 30};
  j.fruitless_restores = kFruitlessRestores;
  RestoreChoice c(j, false);
  c.scanned({checkpoint(35), checkpoint(30)});
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().info.step, 35);
  c.verified({});
  EXPECT_EQ(c.step().kind, Kind::chosen);
}

TEST(RestoreChoice, FruitlessWithNothingOlderTakesTheSameOnceMore) {
  JobRecord j = job_with(3);
  j.restored = job::Restore{"/c/ckpt-30", 30};
  j.fruitless_restores = kFruitlessRestores;
  RestoreChoice c(j, false);
  c.scanned({checkpoint(30)});
  ASSERT_EQ(c.step().kind, Kind::verify);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().info.step, 30);
}

TEST(RestoreChoice, AnAskedForPathIsFoundInItsParentToo) {
  JobRecord j = job_with(0);
  j.spec.checkpoint->restore = "/other/model.ckpt-9";
  RestoreChoice c(j, false);
  EXPECT_TRUE(c.pinned());
  c.scanned({});
  ASSERT_EQ(c.step().kind, Kind::scan_parent);
  auto other = checkpoint(10), wanted = checkpoint(9);
  wanted.path = "/other/model.ckpt-9";
  c.scanned({other, wanted});
  ASSERT_EQ(c.step().kind, Kind::verify);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().info.path, wanted.path);
}

TEST(RestoreChoice, AnAskedForPathThatDoesNotVerifyBlocks) {
  JobRecord j = job_with(0);
  j.spec.checkpoint->restore = "/other/x";
  RestoreChoice c(j, false);
  c.scanned({});
  c.scanned({});
  EXPECT_EQ(c.step().kind, Kind::blocked);
}

}  // namespace
}  // namespace dtrain::cluster
