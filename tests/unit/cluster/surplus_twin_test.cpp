// checkpoint.keep against a naive twin, over drawn jobs: what goes is what the twin, which counts one by one, does not keep.
#include <gtest/gtest.h>

#include <set>

#include "common/base/rng.h"
#include "common/cluster/surplus.h"
#include "common/transfer/format.h"

namespace dtrain::cluster {
namespace {

struct Drawn {
  JobRecord job;
  std::set<NodeId> gone;
};

Drawn draw_job(std::uint64_t seed) {
  Rng rng(seed);
  Drawn d;
  d.job.spec.checkpoint = job::CheckpointSpec{};
  d.job.spec.checkpoint->dir = "/c";
  d.job.spec.checkpoint->keep = static_cast<std::uint32_t>(rng.below(4));
  d.job.generation = 2;
  if (rng.chance(1, 4)) d.job.lineage.push_back({2, static_cast<std::int64_t>(rng.below(8))});
  for (const char* host : {"n1", "n2", "n3"})
    if (rng.chance(1, 6)) d.gone.insert(host);
  const std::uint64_t count = rng.below(9);
  for (std::uint64_t i = 0; i < count; ++i) {
    CheckpointRecord r;
    r.info.step = static_cast<std::int64_t>(rng.below(12));
    r.info.path = (rng.chance(1, 10) ? "/elsewhere/step_" : "/c/step_") + std::to_string(i);
    r.info.digest = "d" + std::to_string(i);
    r.generation = 1 + rng.below(2);
    r.state = CheckpointState(rng.below(6));
    for (const char* host : {"n1", "n2", "n3"})
      if (rng.chance(2, 3)) r.places.push_back({host, 1, {}, rng.chance(3, 4)});
    if (r.state == CheckpointState::shares) r.info.digest.clear();
    r.info.complete = rng.chance(3, 4);
    if (r.state == CheckpointState::verified && rng.chance(1, 5)) d.job.restored_digest = r.info.digest;
    d.job.checkpoints.push_back(std::move(r));
  }
  return d;
}

// Whether a restore could count on all of it.
bool may_be_counted_on(const Drawn& d, const CheckpointRecord& r) {
  std::size_t left = 0, verified = 0;
  for (const auto& p : r.places) {
    left += d.gone.contains(p.host) ? 0 : 1;
    verified += p.verified ? 1 : 0;
  }
  for (const auto& point : d.job.lineage)
    if (point.generation > r.generation && point.step < r.info.step) return false;
  if (!r.info.path.starts_with("/c/") || r.places.empty()) return false;
  if (r.state == CheckpointState::shares) return r.info.complete && left == r.places.size() && verified == left;
  return r.state == CheckpointState::verified && left > 0;
}

bool goes_by_twin(const Drawn& d, std::size_t i) {
  const auto& all = d.job.checkpoints;
  const std::size_t keep = d.job.spec.checkpoint->keep;
  if (keep == 0) return false;
  if (all[i].state == CheckpointState::deleted && !all[i].places.empty()) return all[i].info.path.starts_with("/c/");
  if (!may_be_counted_on(d, all[i])) return false;
  if (all[i].state == CheckpointState::verified && all[i].info.digest == d.job.restored_digest) return false;
  std::size_t newer = 0;
  for (std::size_t j = 0; j < all.size(); ++j) {
    const bool before = all[j].info.step > all[i].info.step || (all[j].info.step == all[i].info.step && j < i);
    newer += j != i && before && may_be_counted_on(d, all[j]) ? 1 : 0;
  }
  return newer >= keep;
}

TEST(SurplusTwin, KeepsWhatTheTwinKeeps) {
  std::uint64_t shares = 0, halves = 0, wholes = 0, kept_read = 0;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    const Drawn d = draw_job(seed);
    const auto surplus = surplus_of(d.job, [&](const NodeId& host) { return d.gone.contains(host); });
    for (std::size_t i = 0; i < d.job.checkpoints.size(); ++i) {
      const CheckpointRecord& r = d.job.checkpoints[i];
      const bool goes = std::ranges::find(surplus, &r) != surplus.end();
      ASSERT_EQ(goes, goes_by_twin(d, i)) << "seed " << seed << ", " << r.info.path << ", step " << r.info.step;
      shares += goes && r.state == CheckpointState::shares ? 1 : 0;
      halves += goes && r.state == CheckpointState::deleted ? 1 : 0;
      wholes += goes && r.state == CheckpointState::verified ? 1 : 0;
      kept_read += !goes && !r.info.digest.empty() && r.info.digest == d.job.restored_digest ? 1 : 0;
    }
  }
  EXPECT_GT(shares, 200u);
  EXPECT_GT(halves, 500u);
  EXPECT_GT(wholes, 500u);
  EXPECT_GT(kept_read, 100u);
}

}  // namespace
}  // namespace dtrain::cluster
