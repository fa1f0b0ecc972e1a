// What the disk holds: how a Persist changes it, and that what older versions stored is still read.
#include "common/wire/codec.h"
#include "tests/unit/raft/tiny_council.h"

namespace dtrain::raft {
namespace {

LogEntry entry(std::uint64_t index, std::uint64_t term) { return {index, term, "e", EntryKind::command, {}}; }
std::vector<std::uint64_t> indices(const Stored& disk) {
  std::vector<std::uint64_t> all;
  for (const LogEntry& stored : disk.log) all.push_back(stored.index);
  return all;
}

TEST(Stored, APersistIsCarriedOutInOrder) {
  Stored disk;
  disk.log = {entry(1, 1), entry(2, 1), entry(3, 1), entry(4, 1)};
  Persist persist;
  persist.hard = HardState{{1, {2, 3}}, 9, 0, 0, {}, false};
  persist.snapshot = StoredSnapshot{2, 1, "s"};
  persist.truncate_from = 4;
  persist.entries = {entry(4, 2), entry(5, 2)};
  store(disk, persist);
  EXPECT_EQ(disk.hard.term, 9u);
  EXPECT_EQ(indices(disk), (std::vector<std::uint64_t>{3, 4, 5}));
  EXPECT_EQ(disk.log[1].term, 2u);
  Persist installed;
  installed.snapshot = StoredSnapshot{3, 7, "t"};
  installed.reset_log = true;
  installed.entries = {entry(4, 8)};
  store(disk, installed);
  EXPECT_EQ(indices(disk), (std::vector<std::uint64_t>{4}));
  EXPECT_EQ(disk.snapshot->payload, "t");
}

// The log of one voter had entries of three fields, and no hard state.
TEST(Stored, RecordsOfOlderVersionsAreRead) {
  wire::Writer w;
  w.map(3);
  w.text("index"), w.natural(7);
  w.text("term"), w.natural(2);
  w.text("payload"), w.text("bytes");
  const std::string old = w.take();
  const auto read = wire::decode<LogEntry>(old);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, (LogEntry{7, 2, "bytes", EntryKind::command, {}}));
  const auto snapshot = wire::decode<StoredSnapshot>(old);
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->payload, "bytes");
  EXPECT_TRUE(snapshot->configuration.empty());
  EXPECT_EQ(*wire::decode<HardState>("\x80"), HardState{});
}

TEST(Stored, ALogOfOneVoterBecomesAHistory) {
  Stored old;
  old.snapshot = StoredSnapshot{2, 1, "a;b;"};
  old.log = {entry(3, 1), entry(4, 2)};
  old.log[1].elapsed = 9s;
  TinyCouncil council;
  council.at(1).disk = recovered(old, TinyCouncil::id(1), {8, 8});
  EXPECT_EQ(council.at(1).disk.log.back().elapsed, 9s);
  council.start(1);
  EXPECT_TRUE(council.commit("c"));
  EXPECT_EQ(council.at(1).state, "a;b;e;e;c;");
  EXPECT_EQ(council.raft(1).history(), (History{1, {8, 8}}));
  EXPECT_GE(council.raft(1).elapsed(council.now), 9s);
}

TEST(Stored, HardStateSurvivesARoundTrip) {
  const HardState hard{{3, {1, 2}}, 7, 5, 6, {{1, 2, {3, 4}}, {5, 6, {7, 8}}}, true};
  const auto again = wire::decode<HardState>(wire::encode(hard));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, hard);
}

}  // namespace
}  // namespace dtrain::raft
