// The agent's durable state in SQLite (<data>/dtrain.db; WAL, synchronous=FULL): what raft::Persist asks for (hard
// state, log, newest snapshot), the host's task records, promises to other founders, and this node's identity. Every
// row has a checksum of its own, so that damage is found when it is read. Nothing is ever deleted because it is
// damaged.
//
// Used by one thread at a time: opened and loaded before the disk worker starts to commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/raft/log_entry.h"

struct sqlite3;
struct sqlite3_stmt;

namespace dtrain::store {

// 1: a log of one voter, from before common/raft, which is migrated when it is opened.
inline constexpr int kSchemaVersion = 3;
// Size limit of the write-ahead log (dtrain.db-wal) while the agent runs, except for one long transaction: it is
// restarted at half of that.
inline constexpr std::size_t kWalBytes = 2 << 20;

struct StoredState {
  NodeId node;                // made at the first start
  std::uint64_t life = 0;     // of this start; counts from 1
  std::string cluster_id;     // "": it belongs to none yet
  std::string previous_boot;  // boot id of the previous life; "": there was none
  raft::Stored replica;       // a hard state without a history: never a member of a council (or schema 1)
  std::map<std::string, std::string> task_records;
  std::string formation;  // an encoded cluster::formation::Record; "": never took part in a formation
};

// The content of one transaction: any number of node::Persist effects in order, merged (see committer.h). Applied in
// the order of the fields.
struct Transaction {
  bool forget_log = false;                                         // hard state, snapshot and log are dropped, before all that follows
  std::optional<raft::HardState> hard;                             // replaces the older one
  std::optional<raft::StoredSnapshot> snapshot;                    // replaces the older one; log entries up to it are dropped
  bool reset_log = false;                                          // with a snapshot: all log entries are dropped
  std::optional<std::uint64_t> truncate_from;                      // log entries from this index on are dropped
  std::vector<raft::LogEntry> append;                              // appended; an index that exists is an error
  std::map<std::string, std::optional<std::string>> task_records;  // nullopt: erased
  std::optional<std::string> formation;                            // replaces the older one
};

class Store {
 public:
  // Opens or creates the database. ErrorCode::refused: written by a newer version, which the message names; nothing was
  // changed. ErrorCode::damaged: the database does not verify. ErrorCode::limit: no space. Otherwise ErrorCode::io.
  static Result<std::unique_ptr<Store>> open(const std::string& data_dir, const std::string& version);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Writes every page anew and flushes it. After a failed write this must happen before anything is promised again in
  // this boot of the machine: the kernel may still show data that it could not write, and forget it later. Earlier
  // promises had been flushed.
  Status rewrite();
  // Counts a new life (durably) and reads everything.
  Result<StoredState> begin_life(const std::string& boot_id, const NodeId& id_if_new);
  // To be called once, when the node enters a cluster.
  Status set_cluster_id(const std::string& cluster_id);
  // All or nothing, durable when it returns. ErrorCode::limit: no space, nothing changed, try again later; any other
  // error is fatal to the agent.
  Status commit(const Transaction& transaction);

 private:
  class Statement;
  explicit Store(std::string path) : path_(std::move(path)) {}
  Status prepare_schema(const std::string& version);
  Status migrate(std::uint64_t from);
  Status refuse_newer();
  void reserve_wal();
  Result<std::string> get_meta(const std::string& key);
  Status put_meta(const std::string& key, const std::string& value);
  Status load_hard(StoredState& state);
  Status load_snapshot(StoredState& state);
  Status load_log(StoredState& state);
  Status load_task_records(StoredState& state);
  Status load_formation(StoredState& state);
  Status apply(const Transaction& transaction);
  Status write_snapshot(const raft::StoredSnapshot& snapshot, bool reset_log);
  Status write_log(const Transaction& transaction);
  Status write_task_records(const Transaction& transaction);
  Status write_formation(const std::string& record);
  tl::unexpected<Error> damaged(const std::string& what) const;
  Status run_script(const char* sql);
  Status run(const char* sql);
  sqlite3_stmt* prepared(const char* sql);
  Status in_transaction(const std::function<Status()>& body);
  Error error(const std::string& what) const;

  std::string path_;
  sqlite3* db_ = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> prepared_;  // by its text
};

}  // namespace dtrain::store
