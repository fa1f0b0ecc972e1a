// Which checkpoint is restored where each host has only a share of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "common/base/rng.h"
#include "common/cluster/restore.h"
#include "common/transfer/format.h"

namespace dtrain::cluster {
namespace {

using Kind = RestoreChoice::Step::Kind;
using transfer::CheckpointInfo;

transfer::FormatId sharded() {
  for (std::size_t i = 0; i < transfer::formats().size(); ++i)
    if (transfer::formats()[i]->name == "torch-distributed") return transfer::FormatId(i);
  return {};
}

// What a directory holds: names, and which bytes. ".metadata" says that there must be those of `ranks` ranks.
using Held = std::map<std::string, int>;
std::string shard(int rank) { return "__" + std::to_string(rank) + "_0.distcp"; }

CheckpointInfo share(std::int64_t step, const Held& held, int ranks = 2) {
  CheckpointInfo info;
  info.format = sharded();
  info.path = "/c/step_" + std::to_string(step);
  info.step = step;
  std::size_t there = 0;
  for (const auto& [name, bytes] : held) {
    info.shares.files.push_back({name, 10, std::to_string(bytes)});
    info.digest += name + "=" + std::to_string(bytes) + ",";
    info.bytes += 10;
    there += name == ".metadata" ? 0 : 1;
  }
  if (held.contains(".metadata"))
    for (int rank = 0; rank < ranks; ++rank) info.shares.list += shard(rank) + "\n";
  if (held.contains(".metadata") && there == static_cast<std::size_t>(ranks)) {  // all of it
    info.shares = {};
    info.complete = true;
  }
  return info;
}

const Held kFirst{{".metadata", 1}, {shard(0), 1}}, kSecond{{shard(1), 1}}, kAll{{".metadata", 1}, {shard(0), 1}, {shard(1), 1}};

JobRecord sharded_job(Generation generation) {
  JobRecord j;
  j.spec.name = "j";
  j.spec.checkpoint = job::CheckpointSpec{};
  j.spec.checkpoint->dir = "/c";
  j.generation = generation;
  for (const char* host : {"h1", "h2", "h3", "h4"}) j.ran[host] = generation;
  return j;
}

TEST(RestoreShares, ArePutTogetherOnTheHostWithTheMostOfThem) {
  RestoreChoice c(sharded_job(1), {});
  c.scanned({{"h1", {share(5, kSecond)}}, {"h2", {share(5, kFirst)}}}, {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify) << "its own share";
  EXPECT_EQ(c.step().at.hosts, std::vector<NodeId>{"h2"});
  EXPECT_TRUE(c.step().at.info.is_share());
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::fetch);
  EXPECT_EQ(c.step().to, "h2");
  EXPECT_EQ(c.step().at.hosts, std::vector<NodeId>{"h1"});
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::scan);
  c.scanned({{"h1", {share(5, kSecond)}}, {"h2", {share(5, kAll)}}}, {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify) << "all of it";
  EXPECT_FALSE(c.step().at.info.is_share());
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.hosts, std::vector<NodeId>{"h2"});
}

TEST(RestoreShares, OneThatLacksAShareIsPassedOverAndMovedAway) {
  RestoreChoice c(sharded_job(1), {});
  c.scanned({{"h1", {share(9, kFirst), share(5, kAll)}}, {"h2", {}}}, {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 5);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::quarantine) << "the next generation may write the rest of it, which is not of this one";
  EXPECT_EQ(c.step().at.info.step, 9);
  EXPECT_FALSE(c.step().damaged);
  c.quarantined();
  EXPECT_EQ(c.step().kind, Kind::chosen);
  // What nobody knows to be a checkpoint stays, and so does what lay there before the job.
  RestoreChoice other(sharded_job(1), {});
  other.scanned({{"h1", {share(9, kSecond), share(5, kAll)}}}, {}, false);
  other.verified({});
  EXPECT_EQ(other.step().kind, Kind::chosen);
  RestoreChoice before(sharded_job(0), {});
  before.scanned({{"h1", {share(9, kFirst)}}}, {}, false);
  EXPECT_EQ(before.step().kind, Kind::nothing);
}

// In a directory that all hosts see it is one share, which is moved away once: before the next generation begins, which may write there.
TEST(RestoreShares, OneThatAllHostsSeeIsMovedAwayOnce) {
  RestoreChoice c(sharded_job(1), {});
  CheckpointInfo half = share(9, kFirst), older = share(5, kAll);
  half.place = 7;
  older.place = 6;
  c.scanned({{"h1", {half, older}}, {"h2", {half, older}}, {"h3", {half, older}}}, {}, false);
  ASSERT_EQ(c.step().kind, Kind::verify);
  EXPECT_EQ(c.step().at.info.step, 5);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::quarantine);
  EXPECT_EQ(c.step().at.info.step, 9);
  EXPECT_EQ(c.step().at.hosts.size(), 3u);
  c.quarantined();
  ASSERT_EQ(c.step().kind, Kind::chosen);
}

TEST(RestoreShares, OneThatIsDamagedIsTakenFromAnotherHost) {
  RestoreChoice c(sharded_job(1), {});
  const std::vector<RestoreChoice::Found> found{{"h1", {share(5, kFirst)}}, {"h2", {share(5, kSecond)}}, {"h3", {share(5, kSecond)}}};
  c.scanned(found, {}, false);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::fetch);
  EXPECT_EQ(c.step().at.hosts, std::vector<NodeId>{"h2"});
  c.verified(fail(ErrorCode::damaged, "flipped"));
  ASSERT_EQ(c.step().kind, Kind::scan);
  c.scanned(found, {}, false);
  c.verified({});
  ASSERT_EQ(c.step().kind, Kind::fetch);
  EXPECT_EQ(c.step().at.hosts, std::vector<NodeId>{"h3"});
}

TEST(RestoreShares, TwoSavesOfOneStepDoNotMix) {
  RestoreChoice c(sharded_job(1), {});
  c.scanned({{"h1", {share(5, kFirst)}}, {"h2", {share(5, {{".metadata", 2}, {shard(1), 2}})}}}, {}, false);
  while (c.step().kind == Kind::quarantine) c.quarantined();
  EXPECT_EQ(c.step().kind, Kind::nothing);
  // Nor do those of two generations, which names alone cannot tell.
  JobRecord job = sharded_job(3);
  job.ran["h2"] = 1;
  RestoreChoice later(job, {});
  later.scanned({{"h1", {share(5, kFirst)}}, {"h2", {share(5, kSecond)}}}, {}, false);
  while (later.step().kind == Kind::quarantine) later.quarantined();
  EXPECT_EQ(later.step().kind, Kind::nothing);
}

TEST(RestoreShares, HostThatIsAwayWithItsShareIsWaitedFor) {
  JobRecord job = sharded_job(1);
  CheckpointRecord r;
  r.info = share(9, kFirst);
  r.info.shares = {};
  r.info.complete = true;
  r.info.digest.clear();
  r.generation = 1;
  r.state = CheckpointState::shares;
  r.places = {{"h1", 0, share(9, kFirst).shares}, {"h2", 0, share(9, kSecond).shares}};
  job.checkpoints.push_back(r);
  const std::vector<RestoreChoice::Found> found{{"h1", {share(9, kFirst), share(5, kAll)}}};
  RestoreChoice c(job, {});
  EXPECT_TRUE(c.lacks_newest(found)) << "others may have the rest";
  c.scanned(found, {"h2"}, false);
  ASSERT_EQ(c.step().kind, Kind::wait);
  EXPECT_EQ(c.step().newest->step, 9);
  EXPECT_EQ(c.step().newest->hosts, std::vector<NodeId>{"h2"});
  EXPECT_EQ(c.step().older, 5);
  RestoreChoice waited(job, {});
  waited.scanned(found, {"h2"}, true);
  waited.verified({});
  while (waited.step().kind == Kind::quarantine) waited.quarantined();
  ASSERT_EQ(waited.step().kind, Kind::chosen);
  EXPECT_EQ(waited.step().at.info.step, 5);
}

// What is set aside: (host, step), once the choice has fallen.
std::set<std::pair<NodeId, std::int64_t>> set_aside(RestoreChoice& c) {
  std::set<std::pair<NodeId, std::int64_t>> moved;
  while (c.step().kind == Kind::quarantine || c.step().kind == Kind::verify) {
    if (c.step().kind == Kind::verify) {
      c.verified({});
      continue;
    }
    moved.emplace(c.step().at.hosts.front(), c.step().at.info.step);
    c.quarantined();
  }
  return moved;
}

// Otherwise a script that takes the newest by its name would take the rest of it on the other hosts.
TEST(RestoreShares, GoWhereTheirFirstRankWasBrokenOff) {
  CheckpointInfo rest = share(9, {});
  rest.defect = "trainer_state.json is missing";
  RestoreChoice c(sharded_job(1), {});
  c.scanned({{"h1", {rest, share(5, kAll)}}, {"h2", {share(9, kSecond)}}, {"h3", {share(3, kSecond)}}}, {}, false);
  EXPECT_EQ(set_aside(c), (std::set<std::pair<NodeId, std::int64_t>>{{"h1", 9}, {"h2", 9}}))
      << "step 3 is below the point where it goes on";
  ASSERT_EQ(c.step().kind, Kind::chosen);
  EXPECT_EQ(c.step().at.info.step, 5);
}

TEST(RestoreShares, GoWhereAllHostsSeeThatNobodyHasTheList) {
  CheckpointInfo shared = share(9, kSecond);
  shared.place = 77;
  using Moved = std::set<std::pair<NodeId, std::int64_t>>;
  RestoreChoice foreign(sharded_job(1), {});
  foreign.scanned({{"h1", {shared}}, {"h2", {shared}}}, {}, true);
  EXPECT_EQ(set_aside(foreign), Moved{}) << "the job never had a whole one: another program's may look so";
  JobRecord job = sharded_job(1);
  CheckpointRecord whole;
  whole.info = share(5, kAll);
  whole.generation = 1;
  whole.state = CheckpointState::verified;
  job.checkpoints.push_back(whole);
  for (const auto& [found, away, moved] :
       {std::tuple(std::vector<RestoreChoice::Found>{{"h1", {shared}}, {"h2", {shared}}}, std::set<NodeId>{}, Moved{{"h1", 9}}),
        std::tuple(std::vector<RestoreChoice::Found>{{"h1", {shared}}, {"h2", {shared}}}, std::set<NodeId>{"h3"}, Moved{}),
        std::tuple(std::vector<RestoreChoice::Found>{{"h1", {shared}}, {"h2", {}}}, std::set<NodeId>{}, Moved{})}) {
    RestoreChoice c(job, {});
    c.scanned(found, away, true);
    EXPECT_EQ(set_aside(c), moved);
  }
}

// One that lay there under this path before, and was moved away, says nothing of the next.
TEST(RestoreShares, WhatHasNoDigestIsNoneThatIsKnown) {
  JobRecord job = sharded_job(2);
  CheckpointInfo rest = share(9, {});
  rest.defect = "trainer_state.json is missing";
  CheckpointRecord r;
  r.info = rest;
  r.generation = 0;
  r.state = CheckpointState::quarantined;
  job.checkpoints.push_back(r);
  job.lineage.push_back({.generation = 1, .step = 5});
  RestoreChoice c(job, {});
  c.scanned({{"h1", {rest}}}, {}, false);
  EXPECT_EQ(set_aside(c).size(), 1u);
}

TEST(RestoreShares, WhatIsNotWholeAfterAllEndsTheChoice) {
  RestoreChoice c(sharded_job(1), {});
  const std::vector<RestoreChoice::Found> found{{"h1", {share(5, kFirst)}}, {"h2", {share(5, kSecond)}}};
  c.scanned(found, {}, false);
  c.verified({});
  c.verified({});
  c.scanned(found, {}, false);
  ASSERT_EQ(c.step().kind, Kind::blocked);
  EXPECT_THAT(c.step().reason, testing::HasSubstr("is not whole"));
}

// Hosts with directories, played by a naive world: the choice takes the newest step that good shares make whole, whatever is damaged.
struct World {
  std::map<NodeId, std::map<std::int64_t, Held>> disks;
  std::set<std::pair<NodeId, std::int64_t>> damaged;  // a host's share of that step

  static World of(Rng& rng) {
    World w;
    const std::uint64_t hosts = 1 + rng.below(4);
    for (std::uint64_t h = 1; h <= hosts; ++h) {
      const NodeId host = "h" + std::to_string(h);
      for (std::int64_t step = 1; step <= 3; ++step) {
        Held held;
        for (const std::string& name : {std::string(".metadata"), shard(0), shard(1), shard(2)})
          if (rng.chance(2, 5)) held[name] = rng.chance(1, 12) ? 2 : 1;
        const bool whole = held.size() == 4;  // a host's damaged whole checkpoint is moved away, which is tested elsewhere
        if (held.empty() || (held.size() == 1 && held.contains(".metadata"))) continue;
        w.disks[host][step] = held;
        if (!whole && rng.chance(1, 4)) w.damaged.insert({host, step});
      }
    }
    return w;
  }
  static bool is_whole(const Held& held) { return held.size() == 4; }

  // The newest step that can be restored; 0: none.
  std::int64_t expected() const {
    for (std::int64_t step = 3; step >= 1; --step) {
      Held good, all;
      bool differ = false;
      for (const auto& [host, steps] : disks) {
        const auto at = steps.find(step);
        if (at == steps.end()) continue;
        if (is_whole(at->second)) return step;
        for (const auto& [name, bytes] : at->second) {
          differ = differ || (all.contains(name) && all[name] != bytes);
          all[name] = bytes;
          if (!damaged.contains({host, step})) good[name] = bytes;
        }
      }
      if (!differ && is_whole(good)) return step;
    }
    return 0;
  }
  std::vector<RestoreChoice::Found> scan() const {
    std::vector<RestoreChoice::Found> found;
    for (const auto& [host, steps] : disks) {
      found.push_back({host, {}});
      for (auto s = steps.rbegin(); s != steps.rend(); ++s) found.back().list.push_back(share(s->first, s->second, 3));
    }
    return found;
  }
  bool is_bad(const RestoreChoice::Step& step) const { return damaged.contains({step.at.hosts.front(), step.at.info.step}); }
};

TEST(RestoreShares, NewestThatGoodSharesMakeWhole) {
  std::map<std::int64_t, int> outcomes;
  int fetched = 0;
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    Rng rng(seed);
    World w = World::of(rng);
    const std::int64_t expected = w.expected();
    ++outcomes[expected];
    RestoreChoice c(sharded_job(1), {});
    int turns = 0;
    for (; turns < 100; ++turns) {
      const RestoreChoice::Step step = c.step();
      if (step.kind == Kind::scan) {
        c.scanned(w.scan(), {}, false);
      } else if (step.kind == Kind::verify) {
        if (w.is_bad(step)) c.verified(fail(ErrorCode::damaged, "flipped"));
        else c.verified({});
      } else if (step.kind == Kind::fetch) {
        if (w.is_bad(step)) {
          c.verified(fail(ErrorCode::damaged, "flipped"));
          continue;
        }
        for (const auto& file : step.at.info.shares.files) w.disks[step.to][step.at.info.step][file.name] = std::stoi(file.digest);
        ++fetched;
        c.verified({});
      } else if (step.kind == Kind::quarantine) {
        ASSERT_TRUE(step.at.info.is_share() && step.at.info.step > expected) << "seed " << seed;
        c.quarantined();
      } else {
        break;
      }
    }
    ASSERT_LT(turns, 100) << "seed " << seed;
    ASSERT_EQ(c.step().kind, expected == 0 ? Kind::nothing : Kind::chosen) << "seed " << seed;
    ASSERT_EQ(expected > 0 ? c.step().at.info.step : 0, expected) << "seed " << seed;
  }
  EXPECT_GT(fetched, 1000);
  for (std::int64_t step = 0; step <= 3; ++step) EXPECT_GT(outcomes[step], 500) << step;
}

}  // namespace
}  // namespace dtrain::cluster
