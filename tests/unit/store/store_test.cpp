#include "agent/store/store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "agent/store/file.h"
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
  EXPECT_TRUE(first.log.empty());
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
  ASSERT_TRUE(state.snapshot);
  EXPECT_EQ(state.snapshot->index, 3u);
  EXPECT_EQ(state.snapshot->payload, std::string("snap\0shot", 9));
  ASSERT_EQ(state.log.size(), 2u);
  EXPECT_EQ(state.log[0].index, 4u);
  EXPECT_EQ(state.log[1].payload, "payload 5");
  ASSERT_EQ(state.task_records.size(), 1u);
  EXPECT_EQ(state.task_records.at("17.1.worker-0"), std::string("\0\1\2", 3));
  EXPECT_EQ(state.cluster_id, "abc");
}

TEST(Store, AppendReplacesTheTail) {
  TempDir dir;
  {
    auto store = open_store(dir.path);
    ASSERT_TRUE(store->commit(entries(1, 5, 1)));
    ASSERT_TRUE(store->commit(entries(3, 3, 2)));
  }
  const StoredState state = reopen(dir.path);
  ASSERT_EQ(state.log.size(), 3u);
  EXPECT_EQ(state.log.back().term, 2u);
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
      "UPDATE log SET payload = x'00' WHERE idx = 2",
      "UPDATE log SET term = 9 WHERE idx = 2",
      "DELETE FROM log WHERE idx = 2",
      "UPDATE snapshot SET payload = x'00'",
      "UPDATE task_records SET payload = x'00'",
      "UPDATE task_records SET id = 'other'",
  };
  for (const char* rot : rots) {
    TempDir dir;
    {
      auto store = open_store(dir.path);
      Transaction t = entries(1, 3);
      t.task_records["a"] = "b";
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
  const auto size = fs::file_size(dir.path + "/killed/dtrain.db-wal");
  ASSERT_GT(size, 30u * 4096);
  std::mt19937_64 random(20261120);
  std::uint64_t least = kCommits, most = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string copy = dir.path + "/copy";
    fs::remove_all(copy);
    fs::copy(dir.path + "/killed", copy);
    fs::resize_file(copy + "/dtrain.db-wal", round == 0 ? size : random() % size);
    const auto store = Store::open(copy, "1");
    ASSERT_TRUE(store) << store.error().text();
    const auto state = (*store)->begin_life("boot", "id");
    ASSERT_TRUE(state) << state.error().text();
    const std::uint64_t have = state->log.size();
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
    for (const raft::LogEntry& entry : state->log) {
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
