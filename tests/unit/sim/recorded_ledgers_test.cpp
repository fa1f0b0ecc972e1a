// Logs of simulated clusters, recorded by earlier versions of this program: every later one must make the same ledgers of them.
//
// tests/golden/ledger/VERSION/ holds those of one version of the ledger. They are never written anew: a test that fails here says that
// a rule was changed without a version (docs/upgrading.md). Of a new version: DTRAIN_UPDATE_GOLDEN=1 records what is not there yet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/sim/cluster_world.h"

namespace dtrain::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kHashEvery = 32;  // entries
constexpr std::size_t kFileBytes = 64 << 20;

struct Course {
  std::size_t nodes;
  std::uint64_t seed;
};
// Chosen so that each rule of the ledger that can be broken (below) decides something in one of them.
constexpr Course kCourses[] = {{1, 1}, {1, 2}, {3, 1}, {3, 2}, {3, 3}, {5, 1}};

struct Recorded {
  std::vector<wire::LogEntry> entries;             // from index 1
  std::map<std::uint64_t, std::uint64_t> hashes;   // Ledger::hash() after so many entries
  template <class V>
  void fields(V& v) {
    v("entries", entries);
    v("hashes", hashes);
  }
};

fs::path directory() { return fs::path(DTRAIN_SOURCE_DIR) / "tests/golden/ledger"; }

std::map<std::uint64_t, std::uint64_t> hashes_of(const std::vector<wire::LogEntry>& entries, const std::string& broken_rule = "") {
  std::map<std::uint64_t, std::uint64_t> hashes;
  cluster::Ledger ledger;
  ledger.broken_rule = broken_rule;
  for (const wire::LogEntry& entry : entries) {
    if (entry.kind == wire::EntryKind::command)
      ledger.apply(entry.index, entry.payload, entry.elapsed);
    else
      ledger.skip(entry.index);
    if (entry.index % kHashEvery == 0 || entry.index == entries.size()) hashes[entry.index] = ledger.hash();
  }
  return hashes;
}

Recorded record(const Course& course) {
  RunOptions options;
  options.nodes = course.nodes;
  options.seed = course.seed;
  options.duration = ClusterWorld::kShortest;
  options.whole_log = true;
  for (const Fault fault : {Fault::quorum_lost, Fault::upgrade}) options.faults.set(fault, false);
  ClusterWorld world(options);
  const RunResult result = world.run();
  EXPECT_FALSE(result.violation) << result.violation->what;
  Recorded recorded;
  for (const wire::LogEntry& entry : world.host().disk().stored().replica.log)
    if (entry.index <= world.host().node()->ledger_index()) recorded.entries.push_back(entry);
  recorded.hashes = hashes_of(recorded.entries);
  return recorded;
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Recorded load(const fs::path& path) {
  wire::DecodeLimits limits;
  limits.bytes = kFileBytes;
  auto recorded = wire::decode<Recorded>(read(path), limits);
  EXPECT_TRUE(recorded) << path << ": " << recorded.error().text();
  return recorded ? *recorded : Recorded{};
}

std::vector<fs::path> all_recorded() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(directory()))
    if (entry.path().extension() == ".log") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(RecordedLedgers, GiveTheSameStates) {
  const fs::path newest = directory() / std::to_string(cluster::kNewestVersion);
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) {
    fs::create_directories(newest);
    for (const Course& course : kCourses) {
      const fs::path path = newest / (std::to_string(course.nodes) + "-hosts-seed-" + std::to_string(course.seed) + ".log");
      if (!fs::exists(path)) std::ofstream(path, std::ios::binary) << wire::encode(record(course));
    }
  }
  for (std::uint32_t version = cluster::kFirstVersion; version <= cluster::kNewestVersion; ++version)
    ASSERT_TRUE(fs::exists(directory() / std::to_string(version))) << "no logs of version " << version << " are recorded";
  for (const fs::path& path : all_recorded()) {
    const Recorded recorded = load(path);
    ASSERT_GT(recorded.hashes.size(), 3u) << path;
    const auto hashes = hashes_of(recorded.entries);
    for (const auto& [index, hash] : recorded.hashes)
      ASSERT_EQ(hashes.at(index), hash) << path << ": the state after entry " << index << " is another than it was";
  }
}

// What these tests are for: a rule that is changed shows.
class ChangedRule : public testing::TestWithParam<const char*> {};
TEST_P(ChangedRule, GivesOtherStates) {
  for (const fs::path& path : all_recorded()) {
    const Recorded recorded = load(path);
    if (hashes_of(recorded.entries, GetParam()) != recorded.hashes) return;
  }
  FAIL() << "no recorded log shows it";
}
INSTANTIATE_TEST_SUITE_P(OfTheLedger, ChangedRule,
                         testing::Values("consequence-costs-nothing", "frozen-costs-nothing", "completion-durable", "budget",
                                         "stateful-waits-for-its-host", "deleted-gives-its-name", "preempted-costs-nothing"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace dtrain::sim
