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
#include <set>

#include "tests/sim/cluster_world.h"

namespace dtrain::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kHashEvery = 16;  // entries
constexpr std::size_t kFileBytes = 64 << 20;

struct Course {
  std::size_t nodes;
  std::uint64_t seed;
};
// Of the ledger, each of which must decide something in a recorded log: changed, it shows.
constexpr const char* kRules[] = {"consequence-costs-nothing",   "frozen-costs-nothing",   "completion-durable",     "budget",
                                  "stateful-waits-for-its-host", "deleted-gives-its-name", "preempted-costs-nothing"};

struct Recorded {
  std::vector<wire::LogEntry> entries;            // from index 1
  std::map<std::uint64_t, std::uint64_t> hashes;  // Ledger::hash() after so many entries
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
    if (entry.kind == wire::EntryKind::command) ledger.apply(entry.index, entry.payload, entry.elapsed);
    else ledger.skip(entry.index);
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

bool shows(const Recorded& recorded, const std::string& rule) { return hashes_of(recorded.entries, rule) != recorded.hashes; }

// For each rule the first course that shows it, of one host and of several.
void record_all(const fs::path& to) {
  constexpr std::uint64_t kSeeds = 200;
  fs::create_directories(to);
  std::set<std::string> unseen(std::begin(kRules), std::end(kRules));
  for (std::uint64_t seed = 1; seed <= kSeeds && !unseen.empty(); ++seed)
    for (const std::size_t nodes : {1, 3, 5}) {
      const Recorded recorded = record({nodes, seed});
      if (std::erase_if(unseen, [&](const std::string& rule) { return shows(recorded, rule); }) == 0) continue;
      std::ofstream(to / (std::to_string(nodes) + "-hosts-seed-" + std::to_string(seed) + ".log"), std::ios::binary)
          << wire::encode(recorded);
    }
  EXPECT_TRUE(unseen.empty()) << *unseen.begin() << " decides nothing in any of them";
}

TEST(RecordedLedgers, GiveTheSameStates) {
  const fs::path newest = directory() / std::to_string(cluster::kNewestVersion);
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr && !fs::exists(newest)) record_all(newest);
  for (std::uint32_t version = cluster::kFirstVersion; version <= cluster::kNewestVersion; ++version)
    ASSERT_TRUE(fs::exists(directory() / std::to_string(version))) << "no logs of version " << version << " are recorded";
  for (const fs::path& path : all_recorded()) {
    const Recorded recorded = load(path);
    ASSERT_GT(recorded.hashes.size(), 1u) << path;
    const auto hashes = hashes_of(recorded.entries);
    for (const auto& [index, hash] : recorded.hashes)
      ASSERT_EQ(hashes.at(index), hash) << path << ": the state after entry " << index << " is another than it was";
  }
}

// What these tests are for: a rule that is changed shows.
class ChangedRule : public testing::TestWithParam<const char*> {};
TEST_P(ChangedRule, GivesOtherStates) {
  for (const fs::path& path : all_recorded()) {
    if (shows(load(path), GetParam())) return;
  }
  FAIL() << "no recorded log shows it";
}
INSTANTIATE_TEST_SUITE_P(OfTheLedger, ChangedRule, testing::ValuesIn(kRules), [](const auto& param) {
  std::string name = param.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace dtrain::sim
