#include "agent/store/store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "agent/store/committer.h"
#include "agent/store/disk_failure.h"
#include "agent/store/file.h"
#include "common/raft/raft.h"
#include "tests/unit/store/temp_dir.h"

namespace dtrain::store {
namespace {

namespace fs = std::filesystem;

Transaction entries(std::uint64_t first, std::uint64_t last, std::uint64_t term = 1) {
  Transaction t;
  for (std::uint64_t i = first; i <= last; ++i) t.append.push_back({i, term, "payload " + std::to_string(i)});
  return t;
}

std::unique_ptr<Store> open_store(const std::string& dir) {
  auto store = Store::open(dir, "1.2.3");
  EXPECT_TRUE(store) << store.error().text();
  return store ? std::move(*store) : nullptr;
}

StoredState reopen(const std::string& dir) {
  auto state = open_store(dir)->begin_life("boot", "fresh-id");
  EXPECT_TRUE(state) << state.error().text();
  return state ? *state : StoredState{};
}

TEST(Store, BeginsEmptyAndCountsLives) {
  TempDir dir;
  const StoredState first = reopen(dir.path);
  EXPECT_EQ(first.life, 1u);
  EXPECT_EQ(first.node, "fresh-id");
  EXPECT_EQ(first.previous_boot, "");
  EXPECT_TRUE(first.replica.log.empty());
  auto store = open_store(dir.path);
  const auto second = store->begin_life("boot-2", "other-id");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->life, 2u);
  EXPECT_EQ(second->node, "fresh-id");
  EXPECT_EQ(second->previous_boot, "boot");
}

TEST(Store, KeepsLogSnapshotRecordsAndCluster) {
  TempDir dir;
  {
    auto store = open_store(dir.path);
    ASSERT_TRUE(store->commit(entries(1, 5)));
    Transaction t;
    t.snapshot = raft::StoredSnapshot{3, 1, std::string("snap\0shot", 9)};
    t.task_records["17.1.worker-0"] = std::string("\0\1\2", 3);
    t.task_records["17.1.worker-1"] = "x";
    ASSERT_TRUE(store->commit(t));
    Transaction erase;
    erase.task_records["17.1.worker-1"] = std::nullopt;
    ASSERT_TRUE(store->commit(erase));
    ASSERT_TRUE(store->set_cluster_id("abc"));
  }
  const StoredState state = reopen(dir.path);
  ASSERT_TRUE(state.replica.snapshot);
  EXPECT_EQ(state.replica.snapshot->index, 3u);
  EXPECT_EQ(state.replica.snapshot->payload, std::string("snap\0shot", 9));
  ASSERT_EQ(state.replica.log.size(), 2u);
  EXPECT_EQ(state.replica.log[0].index, 4u);
  EXPECT_EQ(state.replica.log[1].payload, "payload 5");
  ASSERT_EQ(state.task_records.size(), 1u);
  EXPECT_EQ(state.task_records.at("17.1.worker-0"), std::string("\0\1\2", 3));
  EXPECT_EQ(state.cluster_id, "abc");
}

TEST(Store, KeepsWhatWasPromisedAndForgetsALogInOneTransaction) {
  TempDir dir;
  {
    auto store = open_store(dir.path);
    Transaction begin = entries(2, 3);
    begin.hard = raft::HardState{{1, {5, 6}}, 1, 0, 0, {}, false};
    begin.snapshot = raft::StoredSnapshot{1, 1, "snap"};
    begin.formation = std::string("promised\0", 9);
    ASSERT_TRUE(store->commit(begin));
  }
  const StoredState begun = reopen(dir.path);
  EXPECT_EQ(begun.formation, std::string("promised\0", 9));
  EXPECT_EQ(begun.replica.log.size(), 2u);
  {
    auto store = open_store(dir.path);
    Transaction away;
    away.forget_log = true;
    away.formation = "withdrawn";
    away.append = entries(1, 1, 7).append;
    ASSERT_TRUE(store->commit(away));
  }
  const StoredState gone = reopen(dir.path);
  EXPECT_EQ(gone.formation, "withdrawn");
  EXPECT_TRUE(gone.replica.hard.history.none());
  EXPECT_FALSE(gone.replica.snapshot);
  ASSERT_EQ(gone.replica.log.size(), 1u);
  EXPECT_EQ(gone.replica.log.front().term, 7u);
}

TEST(Store, TheTailIsCutBeforeWhatReplacesIt) {
  TempDir dir;
  {
    auto store = open_store(dir.path);
    ASSERT_TRUE(store->commit(entries(1, 5, 1)));
    Transaction t = entries(3, 3, 2);
    t.truncate_from = 3;
    ASSERT_TRUE(store->commit(t));
    EXPECT_FALSE(store->commit(entries(3, 3, 3)));  // an index that is taken
  }
  const StoredState state = reopen(dir.path);
  ASSERT_EQ(state.replica.log.size(), 3u);
  EXPECT_EQ(state.replica.log.back().term, 2u);
}

raft::HardState hard_state(std::uint64_t term) {
  raft::HardState hard;
  hard.history = {1, {7, 8}};
  hard.term = term;
  hard.vote_for({1, 2});
  hard.lives = {{1, 2, {3, 4}}, {5, 6, {7, 8}}};
  return hard;
}

// What the store keeps is what raft::store(), the reference, would: whatever is committed, in whatever transactions.
TEST(Store, KeepsWhatRaftAsksFor) {
  std::mt19937_64 random(20261120);
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  for (int round = 0; round < 20; ++round) {
    TempDir dir;
    auto store = open_store(dir.path);
    raft::Stored expected;
    Transaction merged;
    for (int step = 0; step < 30; ++step) {
      raft::Persist persist;
      const std::uint64_t base = expected.snapshot ? expected.snapshot->index : 0;
      std::uint64_t last = base + expected.log.size();
      if (below(4) == 0) persist.hard = hard_state(random() >> 2);
      if (below(6) == 0) {
        persist.reset_log = below(2) == 0;
        const std::uint64_t index = persist.reset_log ? last + below(5) + 1 : base + below(last - base + 1);
        if (index > base) {
          persist.snapshot = raft::StoredSnapshot{index, 3, "state", "configuration", Duration(below(3))};
          if (persist.reset_log) last = index;
        } else {
          persist.reset_log = false;
        }
      }
      const std::uint64_t first = persist.snapshot ? persist.snapshot->index + 1 : base + 1;
      if (below(4) == 0 && last >= first) {
        persist.truncate_from = first + below(last - first + 1);
        last = *persist.truncate_from - 1;
      }
      for (std::uint64_t more = below(4); more > 0; --more)
        persist.entries.push_back(
            {++last, below(9) + 1, std::string(below(40), 'p'), static_cast<raft::EntryKind>(below(3)), Duration(below(1000))});
      raft::store(expected, persist);
      Transaction t{false, persist.hard, persist.snapshot, persist.reset_log, persist.truncate_from, persist.entries, {}, {}};
      if (below(2) == 0) {
        merge(merged, std::move(t));
        continue;
      }
      merge(merged, std::move(t));
      ASSERT_TRUE(store->commit(std::exchange(merged, {})));
    }
    ASSERT_TRUE(store->commit(merged));
    store.reset();
    const raft::Stored kept = reopen(dir.path).replica;
    EXPECT_EQ(kept.hard, expected.hard);
    EXPECT_EQ(kept.log, expected.log);
    ASSERT_EQ(kept.snapshot.has_value(), expected.snapshot.has_value());
    if (!kept.snapshot) continue;
    EXPECT_EQ(kept.snapshot->index, expected.snapshot->index);
    EXPECT_EQ(kept.snapshot->configuration, expected.snapshot->configuration);
    EXPECT_EQ(kept.snapshot->elapsed, expected.snapshot->elapsed);
  }
}

// Written by an agent of version 0.1.0, before the council: one job, run to its end.
TEST(Store, OpensADirectoryOfSchema1AndGoesOn) {
  TempDir dir;
  fs::copy(DTRAIN_SOURCE_DIR "/tests/golden/store/schema_1.db", dir.path + "/dtrain.db");
  const StoredState old = reopen(dir.path);
  EXPECT_EQ(old.life, 3u);
  EXPECT_EQ(old.node, "578a7e03cd2ebeb50988cc06b63deae8");
  EXPECT_EQ(old.cluster_id, "8640a3c5bbf89020a5aa94e652d68ea7");
  EXPECT_TRUE(old.replica.hard.history.none());
  const std::uint64_t last = old.replica.log.size();
  ASSERT_EQ(last, 11u);
  EXPECT_EQ(old.replica.log.back().kind, raft::EntryKind::command);
  {
    auto store = open_store(dir.path);
    Transaction t;
    t.hard = hard_state(9);
    t.append.push_back({last + 1, 9, "configuration", raft::EntryKind::configuration, 5s});
    t.snapshot = raft::StoredSnapshot{3, 1, "state", "configuration", 4s};
    ASSERT_TRUE(store->commit(t));
  }
  const StoredState next = reopen(dir.path);
  EXPECT_EQ(next.life, 4u);
  EXPECT_EQ(next.replica.hard, hard_state(9));
  EXPECT_EQ(next.replica.snapshot->index, 3u);
  ASSERT_EQ(next.replica.log.size(), last - 2);
  EXPECT_EQ(next.replica.log.back().kind, raft::EntryKind::configuration);
  EXPECT_EQ(next.replica.log.back().elapsed, 5s);
}

std::uint64_t written_by_this_process() {
  std::ifstream file("/proc/self/io");
  for (std::string name; file >> name;) {
    std::uint64_t value = 0;
    file >> value;
    if (name == "wchar:") return value;
  }
  return 0;
}

TEST(Store, RewritesEveryPageAndLosesNothing) {
  TempDir dir;
  auto store = open_store(dir.path);
  Transaction first = entries(1, 200);
  for (auto& entry : first.append) entry.payload.append(1000, 'x');
  first.task_records["17.1.worker-0"] = "record";
  ASSERT_TRUE(store->commit(first));
  ASSERT_TRUE(store->commit(entries(201, 210)));
  const std::uint64_t before = written_by_this_process();
  ASSERT_TRUE(store->rewrite());
  const std::uint64_t size = fs::file_size(dir.path + "/dtrain.db");
  ASSERT_GT(size, 200'000u);
  EXPECT_GE(written_by_this_process() - before, 2 * size) << "into the write-ahead log, and from there";
  EXPECT_EQ(fs::file_size(dir.path + "/dtrain.db-wal"), 0u);
  ASSERT_TRUE(store->commit(entries(211, 212)));
  store.reset();
  const StoredState state = reopen(dir.path);
  ASSERT_EQ(state.replica.log.size(), 212u);
  EXPECT_EQ(state.replica.log[199].payload, first.append[199].payload);
  EXPECT_EQ(state.task_records.at("17.1.worker-0"), "record");
}

// A commit that makes its file longer costs several times as much as one that does not.
TEST(Store, NoCommitMakesTheWalLonger) {
  TempDir dir;
  const auto wal = [&] { return fs::file_size(dir.path + "/dtrain.db-wal"); };
  auto store = open_store(dir.path);
  ASSERT_TRUE(store->begin_life("boot", "id"));
  ASSERT_EQ(wal(), kWalBytes);
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    Transaction t = entries(i, i);
    t.task_records["count"] = std::to_string(i);
    ASSERT_TRUE(store->commit(t));
    ASSERT_EQ(wal(), kWalBytes) << i;
  }
  store.reset();
  EXPECT_EQ(reopen(dir.path).replica.log.size(), 1000u);
  // Longer than what is reserved: once.
  store = open_store(dir.path);
  ASSERT_TRUE(store->begin_life("boot", "id"));
  Transaction large = entries(1001, 1100);
  for (auto& entry : large.append) entry.payload.assign(30'000, 'x');
  ASSERT_TRUE(store->commit(large));
  EXPECT_GT(wal(), kWalBytes);
  ASSERT_TRUE(store->commit(entries(1101, 1101)));
  EXPECT_EQ(wal(), kWalBytes);
}

// Room for the write-ahead log is a matter of speed: where there is none the agent starts, and leaves to others what there is.
TEST(Store, AFullDiskHasNoRoomReserved) {
  const SmallDisk disk("1m");
  if (!disk.mounted()) return;
  auto store = open_store(disk.path());
  ASSERT_TRUE(store->begin_life("boot", "id"));
  EXPECT_LT(fs::file_size(disk.path() + "/dtrain.db-wal"), kWalBytes / 2);
  EXPECT_TRUE(store->commit(entries(1, 5)));
  store.reset();
  EXPECT_EQ(reopen(disk.path()).replica.log.size(), 5u);
}

TEST(Store, ADiskFailureIsRememberedForTheBoot) {
  TempDir dir;
  EXPECT_FALSE(disk_failed(dir.path, "boot-1"));
  ASSERT_TRUE(note_disk_failure(dir.path, "boot-1"));
  EXPECT_TRUE(disk_failed(dir.path, "boot-1"));
  EXPECT_FALSE(disk_failed(dir.path, "boot-2"));
  forget_disk_failure(dir.path);
  EXPECT_FALSE(disk_failed(dir.path, "boot-1"));
}

TEST(Store, RefusesANewerVersionAndChangesNothing) {
  TempDir dir;
  { ASSERT_TRUE(Store::open(dir.path, "99.1")); }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((dir.path + "/dtrain.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA user_version = 77", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const auto before = read_file(dir.path + "/dtrain.db", 1 << 20);
  const auto store = Store::open(dir.path, "1.0");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::refused);
  EXPECT_NE(store.error().text().find("dtrain 99.1"), std::string::npos) << store.error().text();
  EXPECT_NE(store.error().text().find("schema 77"), std::string::npos);
  EXPECT_EQ(read_file(dir.path + "/dtrain.db", 1 << 20).value(), before.value());
}

TEST(Store, RefusesWhatIsNoDatabase) {
  TempDir dir;
  std::ofstream(dir.path + "/dtrain.db") << std::string(8192, 'j');
  const auto store = Store::open(dir.path, "1");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::damaged);
  EXPECT_EQ(read_file(dir.path + "/dtrain.db", 1 << 20).value(), std::string(8192, 'j'));
}

TEST(Store, RefusesAnotherProgramsDatabase) {
  TempDir dir;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((dir.path + "/dtrain.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA application_id = 4711; CREATE TABLE t(x)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const auto store = Store::open(dir.path, "1");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, ErrorCode::damaged);
}

// Runs `sql` on a closed store's file.
void tamper(const std::string& dir, const char* sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((dir + "/dtrain.db").c_str(), &db), SQLITE_OK);
  char* message = nullptr;
  ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, &message), SQLITE_OK) << message;
  sqlite3_close(db);
}

TEST(Store, NoticesRottenRows) {
  const char* const rots[] = {
      "UPDATE log SET payload = x'00' WHERE idx = 2", "UPDATE log SET term = 9 WHERE idx = 2",     "UPDATE log SET kind = 1 WHERE idx = 2",
      "UPDATE log SET kind = 77 WHERE idx = 2",       "UPDATE log SET elapsed = 1 WHERE idx = 2",  "DELETE FROM log WHERE idx = 2",
      "UPDATE snapshot SET payload = x'00'",          "UPDATE snapshot SET configuration = x'00'", "UPDATE snapshot SET elapsed = 1",
      "UPDATE hard_state SET payload = x'00'",        "UPDATE task_records SET payload = x'00'",   "UPDATE task_records SET id = 'other'",
  };
  for (const char* rot : rots) {
    TempDir dir;
    {
      auto store = open_store(dir.path);
      Transaction t = entries(1, 3);
      t.task_records["a"] = "b";
      t.hard = hard_state(1);
      ASSERT_TRUE(store->commit(t));
      if (std::string(rot).find("snapshot") != std::string::npos) {
        Transaction s;
        s.snapshot = raft::StoredSnapshot{1, 1, "s"};
        ASSERT_TRUE(store->commit(s));
      }
    }
    tamper(dir.path, rot);
    const auto state = open_store(dir.path)->begin_life("b", "n");
    ASSERT_FALSE(state) << rot;
    EXPECT_EQ(state.error().code, ErrorCode::damaged) << rot;
  }
}

// A host that dies may leave any prefix of the write-ahead log: what opens is a prefix of what was committed.
TEST(Store, AnyTruncationOfTheWalOpensToACommittedPrefix) {
  TempDir dir;
  constexpr std::uint64_t kCommits = 30;
  {
    auto store = open_store(dir.path);
    ASSERT_TRUE(store->begin_life("boot", "id"));
    for (std::uint64_t i = 1; i <= kCommits; ++i) {
      Transaction t = entries(i, i);
      t.task_records["count"] = std::to_string(i);
      ASSERT_TRUE(store->commit(t));
    }
    // Copied while open: the write-ahead log still holds it all, as after a kill.
    fs::create_directory(dir.path + "/killed");
    for (const char* name : {"dtrain.db", "dtrain.db-wal"}) fs::copy(dir.path + "/" + name, dir.path + "/killed/" + name);
  }
  const std::string wal = read_file(dir.path + "/killed/dtrain.db-wal", kWalBytes).value();
  const auto size = wal.find_last_not_of('\0') + 1;  // what is reserved behind it is empty
  ASSERT_GT(size, 30u * 4096);
  std::mt19937_64 random(20261120);
  std::uint64_t least = kCommits, most = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string copy = dir.path + "/copy";
    fs::remove_all(copy);
    fs::copy(dir.path + "/killed", copy);
    if (round != 0) fs::resize_file(copy + "/dtrain.db-wal", random() % size);
    const auto store = Store::open(copy, "1");
    ASSERT_TRUE(store) << store.error().text();
    const auto state = (*store)->begin_life("boot", "id");
    ASSERT_TRUE(state) << state.error().text();
    const std::uint64_t have = state->replica.log.size();
    ASSERT_EQ(state->task_records.empty() ? "0" : state->task_records.at("count"), std::to_string(have));
    least = std::min(least, have);
    most = std::max(most, have);
  }
  EXPECT_EQ(most, kCommits);
  EXPECT_LT(least, kCommits / 2);
}

// A flipped byte anywhere either is noticed or changes nothing that is read.
TEST(Store, AFlippedByteIsNeverBelieved) {
  TempDir dir;
  {
    auto store = open_store(dir.path);
    ASSERT_TRUE(store->begin_life("boot", "id"));
    Transaction t = entries(1, 20);
    t.task_records["a"] = "b";
    ASSERT_TRUE(store->commit(t));
  }
  const std::string good = read_file(dir.path + "/dtrain.db", 1 << 22).value();
  std::mt19937_64 random(7);
  for (int round = 0; round < 150; ++round) {
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << (random() % 8));
    const std::string copy = dir.path + "/copy";
    fs::remove_all(copy);
    fs::create_directory(copy);
    std::ofstream(copy + "/dtrain.db", std::ios::binary) << bad;
    const auto store = Store::open(copy, "1");
    if (!store) continue;
    const auto state = (*store)->begin_life("boot", "id");
    if (!state) continue;
    for (const raft::LogEntry& entry : state->replica.log) {
      EXPECT_EQ(entry.term, 1u);
      EXPECT_EQ(entry.payload, "payload " + std::to_string(entry.index));
    }
    if (state->task_records.contains("a")) {
      EXPECT_EQ(state->task_records.at("a"), "b");
    }
  }
}

}  // namespace
}  // namespace dtrain::store
