#include "agent/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "agent/store/file.h"
#include "common/base/check.h"
#include "common/wire/codec.h"

namespace dtrain::store {
namespace {

constexpr std::size_t kSumBytes = 16;
constexpr int kApplicationId = 0x64747261;  // "dtra": identifies the database for file(1) and for dtrain

// The rows' order and meaning never change within a schema version; a new version migrates or refuses. Version 1,
// then what each later version adds: a new database is made by the same steps by which an old one is migrated.
constexpr const char* kSchema[kSchemaVersion] = {
    R"(
CREATE TABLE log(idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, payload BLOB NOT NULL, sum BLOB NOT NULL);
CREATE TABLE snapshot(one INTEGER PRIMARY KEY CHECK(one = 1), idx INTEGER NOT NULL, term INTEGER NOT NULL,
                      payload BLOB NOT NULL, sum BLOB NOT NULL);
CREATE TABLE task_records(id TEXT PRIMARY KEY, payload BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
)",
    R"(
ALTER TABLE log ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE log ADD COLUMN elapsed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshot ADD COLUMN configuration BLOB NOT NULL DEFAULT x'';
ALTER TABLE snapshot ADD COLUMN elapsed INTEGER NOT NULL DEFAULT 0;
CREATE TABLE hard_state(one INTEGER PRIMARY KEY CHECK(one = 1), payload BLOB NOT NULL, sum BLOB NOT NULL);
)",
    R"(
CREATE TABLE formation(one INTEGER PRIMARY KEY CHECK(one = 1), payload BLOB NOT NULL, sum BLOB NOT NULL);
)"};

// Small caches: the agent reads the database once and only appends afterwards.
constexpr const char* kSettings = R"(
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA cache_size = -256;
PRAGMA mmap_size = 0;
PRAGMA temp_store = MEMORY;
PRAGMA wal_autocheckpoint = 256;
PRAGMA journal_size_limit = 2097152;
)";
static_assert(kWalBytes == 2'097'152, "what is reserved is kept");

// Over the row's key and bytes, so that neither damage nor exchange goes unnoticed.
std::string row_sum(const std::string& key, std::string_view payload) {
  std::string sum(kSumBytes, '\0');
  crypto_generichash_state state;
  const std::string head = key + '\n';
  crypto_generichash_init(&state, nullptr, 0, kSumBytes);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(head.data()), head.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(payload.data()), payload.size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(sum.data()), kSumBytes);
  return sum;
}

// Columns that schema 1 did not have are left out while they hold their default, so that its checksums stay right.
std::string entry_key(const raft::LogEntry& entry) {
  std::string key = "entry " + std::to_string(entry.index) + " " + std::to_string(entry.term);
  if (entry.kind != raft::EntryKind::command || entry.elapsed != Duration{})
    key += " " + std::to_string(static_cast<int>(entry.kind)) + " " + std::to_string(entry.elapsed.count());
  return key;
}
std::string snapshot_key(const raft::StoredSnapshot& snapshot) {
  std::string key = "snapshot " + std::to_string(snapshot.index) + " " + std::to_string(snapshot.term);
  if (!snapshot.configuration.empty() || snapshot.elapsed != Duration{})
    key += " " + std::to_string(snapshot.elapsed.count()) + " " + snapshot.configuration;
  return key;
}
std::string record_key(const std::string& id) { return "task " + id; }
constexpr const char* kHardKey = "hard state";
constexpr const char* kFormationKey = "formation";
constexpr const char* kNothingDeleted =
    "nothing was deleted: copy the data directory away, restore it from a backup or start with an empty one";

}  // namespace

// One use of a prepared statement that the store keeps. Only one of the same text may be alive. Columns and parameters count from 0.
class Store::Statement {
 public:
  Statement(Store& store, const char* sql) : store_(store), statement_(store.prepared(sql)) { failed_ = !statement_; }
  ~Statement() {
    if (!statement_) return;
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::uint64_t value) {
    failed_ = failed_ || sqlite3_bind_int64(statement_, ++bound_, static_cast<std::int64_t>(value)) != SQLITE_OK;
    return *this;
  }
  Statement& bind(Duration value) { return bind(static_cast<std::uint64_t>(value.count())); }
  Statement& bind_text(const std::string& value) {
    failed_ = failed_ || sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8) != SQLITE_OK;
    return *this;
  }
  Statement& bind_blob(const std::string& value) {
    failed_ = failed_ || sqlite3_bind_blob64(statement_, ++bound_, value.data(), value.size(), SQLITE_STATIC) != SQLITE_OK;
    return *this;
  }
  Statement& bind_blob(std::string&&) = delete;  // SQLite keeps the pointer until the statement was stepped
  Statement& bind_text(std::string&&) = delete;

  // Returns true for a row, false at the end. Errors come from the database.
  Result<bool> step(const std::string& what) {
    if (failed_) return fail(store_.error(what));
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return fail(store_.error(what));
  }
  Status finish(const std::string& what) {
    const auto row = step(what);
    if (!row) return fail(row.error());
    sqlite3_reset(statement_);
    bound_ = 0;
    return {};
  }
  std::uint64_t number(int column) const { return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column)); }
  Duration duration(int column) const { return Duration(sqlite3_column_int64(statement_, column)); }
  std::string bytes(int column) const {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const int size = sqlite3_column_bytes(statement_, column);
    return data ? std::string(data, static_cast<std::size_t>(size)) : std::string();
  }

 private:
  Store& store_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
  bool failed_ = false;
};

Error Store::error(const std::string& what) const {
  const int code = db_ ? sqlite3_errcode(db_) : SQLITE_NOMEM;
  const int system = db_ ? sqlite3_system_errno(db_) : 0;
  const std::string message = "could not " + what + " in " + path_ + ": " + (db_ ? sqlite3_errmsg(db_) : "out of memory");
  const bool full = code == SQLITE_FULL || (code == SQLITE_IOERR && (system == ENOSPC || system == EDQUOT)) ||
                    (code == SQLITE_CANTOPEN && (system == ENOSPC || system == EDQUOT));
  if (full) return Error{ErrorCode::limit, message, "free some space on the disk of the data directory"};
  if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) return Error{ErrorCode::damaged, message, kNothingDeleted};
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
    return Error{ErrorCode::unavailable, message, "end the program that has the database open"};
  return Error{ErrorCode::io, system != 0 ? message + " (" + ::strerror(system) + ")" : message,
               "check the disk of the data directory and its permissions"};
}

// One statement or several, which are not kept.
Status Store::run_script(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return fail(error("write"));
}

Status Store::run(const char* sql) { return Statement(*this, sql).finish("write"); }

// Kept until the database is closed: parsing its statements was half of what a commit computed. Null: it cannot be prepared, and
// error() says why.
sqlite3_stmt* Store::prepared(const char* sql) {
  if (const auto found = prepared_.find(std::string_view(sql)); found != prepared_.end()) {
    CHECK(sqlite3_stmt_busy(found->second) == 0);
    return found->second;
  }
  sqlite3_stmt* made = nullptr;
  if (sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &made, nullptr) != SQLITE_OK) return nullptr;
  prepared_.emplace(sql, made);
  return made;
}

Status Store::in_transaction(const std::function<Status()>& body) {
  if (auto began = run("BEGIN IMMEDIATE"); !began) return began;
  Status done = body();
  if (done) done = run("COMMIT");
  if (!done && !sqlite3_get_autocommit(db_)) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

Result<std::unique_ptr<Store>> Store::open(const std::string& data_dir, const std::string& version) {
  if (sodium_init() < 0) return fail(ErrorCode::internal, "could not initialise libsodium");
  std::unique_ptr<Store> store(new Store(data_dir + "/dtrain.db"));
  // Created here, so that the mode does not depend on the umask: it holds what users submitted.
  const UniqueFd created(::open(store->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!created)
    return fail(ErrorCode::io, "could not open " + store->path_ + ": " + ::strerror(errno),
                "start the agent as the user who owns the data directory");
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(store->path_.c_str(), &store->db_, flags, nullptr) != SQLITE_OK) return fail(store->error("open the database"));
  sqlite3_extended_result_codes(store->db_, 0);
  // Until the version is known to be supported, closing must not even move the write-ahead log into the database.
  sqlite3_db_config(store->db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  // Before everything else: with it SQLite needs no shared-memory file beside the database.
  if (auto done = store->run_script("PRAGMA locking_mode = EXCLUSIVE"); !done) return fail(done.error());
  if (auto done = store->refuse_newer(); !done) return fail(done.error());
  sqlite3_db_config(store->db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  if (auto done = store->run_script(kSettings); !done) return fail(done.error());
  if (auto done = store->prepare_schema(version); !done) return fail(done.error());
  return store;
}

// VACUUM puts every page into the write-ahead log, the checkpoint all of that into the database.
Status Store::rewrite() {
  if (auto done = run("VACUUM"); !done) return done;
  Statement checkpoint(*this, "PRAGMA wal_checkpoint(TRUNCATE)");
  const auto row = checkpoint.step("flush the database");
  if (!row) return fail(row.error());
  if (*row && checkpoint.number(0) == 0) return {};
  return fail(ErrorCode::unavailable, "could not flush " + path_ + ": it is busy", "end the program that has the database open");
}

Store::~Store() {
  for (const auto& [sql, statement] : prepared_) sqlite3_finalize(statement);
  sqlite3_close_v2(db_);
}

// Before anything is written: a newer version's database is left exactly as it is.
Status Store::refuse_newer() {
  std::uint64_t schema = 0, application = 0;
  {
    Statement query(*this, "SELECT user_version, application_id FROM pragma_user_version, pragma_application_id");
    auto row = query.step("read the version");
    if (!row) return fail(row.error());
    schema = query.number(0);
    application = query.number(1);
  }
  if (application != 0 && application != kApplicationId)
    return fail(ErrorCode::damaged, "could not open " + path_ + ": it is another program's database", "give another --data-dir");
  if (schema <= kSchemaVersion) return {};
  std::string writer = "a newer version of dtrain";
  Statement query(*this, "SELECT value FROM meta WHERE key = 'written_by'");
  if (auto row = query.step("read the version"); row && *row) writer = "dtrain " + query.bytes(0);
  return fail(ErrorCode::refused,
              "could not open " + path_ + ": it was written by " + writer + " (schema " + std::to_string(schema) + "; this version knows " +
                  std::to_string(kSchemaVersion) + ")",
              "run that version, or give another --data-dir; nothing was changed");
}

Status Store::prepare_schema(const std::string& version) {
  return in_transaction([&]() -> Status {
    std::uint64_t schema = 0;
    {
      Statement query(*this, "PRAGMA user_version");
      if (auto row = query.step("read the version"); !row) return fail(row.error());
      schema = query.number(0);
    }
    if (auto done = migrate(schema); !done) return done;
    return put_meta("written_by", version);
  });
}

Status Store::migrate(std::uint64_t from) {
  if (from == kSchemaVersion) return {};
  for (std::uint64_t version = from; version < kSchemaVersion; ++version)
    if (auto done = run_script(kSchema[version]); !done) return done;
  const std::string stamp =
      "PRAGMA user_version = " + std::to_string(kSchemaVersion) + "; PRAGMA application_id = " + std::to_string(kApplicationId);
  return run_script(stamp.c_str());
}

Result<std::string> Store::get_meta(const std::string& key) {
  Statement query(*this, "SELECT value FROM meta WHERE key = ?");
  auto row = query.bind_text(key).step("read " + key);
  if (!row) return fail(row.error());
  return *row ? query.bytes(0) : std::string();
}

Status Store::put_meta(const std::string& key, const std::string& value) {
  Statement write(*this, "INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)");
  return write.bind_text(key).bind_text(value).finish("write " + key);
}

// Each commit that makes the file longer also waits for the file system's own journal (ext4, in a file on a loaded
// machine: 4.8 ms, where overwriting takes 0.2). So the write-ahead log gets at once the length at which it is
// restarted. Zeroes after its last frame end it, like the end of the file. Without this it is only slower, so a
// failure is not reported.
void Store::reserve_wal() {
  const UniqueFd wal(::open((path_ + "-wal").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!wal || ::fstat(wal.get(), &info) != 0) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size >= kWalBytes) return;
  if (!write_all(wal.get(), std::string(kWalBytes - size, '\0')) || ::fdatasync(wal.get()) != 0)
    (void)!::ftruncate(wal.get(), info.st_size);  // a full disk: others need the room more
}

Result<StoredState> Store::begin_life(const std::string& boot_id, const NodeId& id_if_new) {
  reserve_wal();
  StoredState state;
  const Status counted = in_transaction([&]() -> Status {
    auto node = get_meta("node");
    auto life = get_meta("life");
    auto boot = get_meta("boot");
    auto cluster = get_meta("cluster");
    for (const auto* value : {&node, &life, &boot, &cluster})
      if (!*value) return fail(value->error());
    if (node->empty()) {
      *node = id_if_new;
      if (auto done = put_meta("node", *node); !done) return done;
    }
    state.node = *node;
    state.life = ::strtoull(life->c_str(), nullptr, 10) + 1;
    state.previous_boot = *boot;
    state.cluster_id = *cluster;
    if (auto done = put_meta("life", std::to_string(state.life)); !done) return done;
    return put_meta("boot", boot_id);
  });
  if (!counted) return fail(counted.error());
  if (auto done = load_hard(state); !done) return fail(done.error());
  if (auto done = load_snapshot(state); !done) return fail(done.error());
  if (auto done = load_log(state); !done) return fail(done.error());
  if (auto done = load_task_records(state); !done) return fail(done.error());
  if (auto done = load_formation(state); !done) return fail(done.error());
  sqlite3_db_release_memory(db_);
  return state;
}

Status Store::set_cluster_id(const std::string& cluster_id) {
  return in_transaction([&] { return put_meta("cluster", cluster_id); });
}

tl::unexpected<Error> Store::damaged(const std::string& what) const {
  return fail(ErrorCode::damaged, "could not read " + path_ + ": " + what, kNothingDeleted);
}

Status Store::load_hard(StoredState& state) {
  Statement query(*this, "SELECT payload, sum FROM hard_state");
  auto row = query.step("read the hard state");
  if (!row) return fail(row.error());
  if (!*row) return {};
  const std::string payload = query.bytes(0);
  auto hard = wire::decode<raft::HardState>(payload);
  if (row_sum(kHardKey, payload) != query.bytes(1) || !hard) return damaged("the hard state does not match its checksum");
  state.replica.hard = *std::move(hard);
  return {};
}

Status Store::load_snapshot(StoredState& state) {
  Statement query(*this, "SELECT idx, term, payload, configuration, elapsed, sum FROM snapshot");
  auto row = query.step("read the snapshot");
  if (!row) return fail(row.error());
  if (!*row) return {};
  raft::StoredSnapshot snapshot{query.number(0), query.number(1), query.bytes(2), query.bytes(3), query.duration(4)};
  if (row_sum(snapshot_key(snapshot), snapshot.payload) != query.bytes(5))
    return damaged("the snapshot at " + std::to_string(snapshot.index) + " does not match its checksum");
  state.replica.snapshot = std::move(snapshot);
  return {};
}

Status Store::load_log(StoredState& state) {
  Statement query(*this, "SELECT idx, term, payload, kind, elapsed, sum FROM log ORDER BY idx");
  std::uint64_t expected = state.replica.snapshot ? state.replica.snapshot->index + 1 : 1;
  for (;;) {
    auto row = query.step("read the log");
    if (!row) return fail(row.error());
    if (!*row) return {};
    const std::uint64_t kind = query.number(3);
    raft::LogEntry entry{query.number(0), query.number(1), query.bytes(2), static_cast<raft::EntryKind>(kind), query.duration(4)};
    if (entry.index != expected)
      return damaged("log entry " + std::to_string(expected) + " is missing before " + std::to_string(entry.index));
    if (kind > static_cast<std::uint64_t>(enum_last(raft::EntryKind{})) || row_sum(entry_key(entry), entry.payload) != query.bytes(5))
      return damaged("log entry " + std::to_string(entry.index) + " does not match its checksum");
    ++expected;
    state.replica.log.push_back(std::move(entry));
  }
}

Status Store::load_task_records(StoredState& state) {
  Statement query(*this, "SELECT id, payload, sum FROM task_records");
  for (;;) {
    auto row = query.step("read the task records");
    if (!row) return fail(row.error());
    if (!*row) return {};
    std::string id = query.bytes(0);
    std::string payload = query.bytes(1);
    if (row_sum(record_key(id), payload) != query.bytes(2)) return damaged("the record of task " + id + " does not match its checksum");
    state.task_records.emplace(std::move(id), std::move(payload));
  }
}

Status Store::load_formation(StoredState& state) {
  Statement query(*this, "SELECT payload, sum FROM formation");
  auto row = query.step("read the record of formation");
  if (!row) return fail(row.error());
  if (!*row) return {};
  state.formation = query.bytes(0);
  if (row_sum(kFormationKey, state.formation) != query.bytes(1)) return damaged("the record of formation does not match its checksum");
  return {};
}

Status Store::commit(const Transaction& transaction) {
  return in_transaction([&] { return apply(transaction); });
}

Status Store::apply(const Transaction& transaction) {
  if (transaction.forget_log)
    if (auto done = run_script("DELETE FROM hard_state; DELETE FROM snapshot; DELETE FROM log"); !done) return done;
  if (transaction.formation)
    if (auto done = write_formation(*transaction.formation); !done) return done;
  if (transaction.hard) {
    const std::string payload = wire::encode(*transaction.hard);
    const std::string sum = row_sum(kHardKey, payload);
    Statement replace(*this, "INSERT OR REPLACE INTO hard_state(one, payload, sum) VALUES(1, ?, ?)");
    if (auto done = replace.bind_blob(payload).bind_blob(sum).finish("write the hard state"); !done) return done;
  }
  if (transaction.snapshot)
    if (auto done = write_snapshot(*transaction.snapshot, transaction.reset_log); !done) return done;
  if (auto done = write_log(transaction); !done) return done;
  return write_task_records(transaction);
}

Status Store::write_formation(const std::string& record) {
  const std::string sum = row_sum(kFormationKey, record);
  Statement replace(*this, "INSERT OR REPLACE INTO formation(one, payload, sum) VALUES(1, ?, ?)");
  return replace.bind_blob(record).bind_blob(sum).finish("write the record of formation");
}

Status Store::write_snapshot(const raft::StoredSnapshot& snapshot, bool reset_log) {
  const std::string sum = row_sum(snapshot_key(snapshot), snapshot.payload);
  Statement replace(*this,
                    "INSERT OR REPLACE INTO snapshot(one, idx, term, payload, configuration, elapsed, sum) "
                    "VALUES(1, ?, ?, ?, ?, ?, ?)");
  replace.bind(snapshot.index).bind(snapshot.term).bind_blob(snapshot.payload).bind_blob(snapshot.configuration);
  if (auto done = replace.bind(snapshot.elapsed).bind_blob(sum).finish("write the snapshot"); !done) return done;
  if (reset_log) return run("DELETE FROM log");
  Statement drop(*this, "DELETE FROM log WHERE idx <= ?");
  return drop.bind(snapshot.index).finish("write the log");
}

Status Store::write_log(const Transaction& transaction) {
  if (transaction.truncate_from) {
    Statement cut(*this, "DELETE FROM log WHERE idx >= ?");
    if (auto done = cut.bind(*transaction.truncate_from).finish("write the log"); !done) return done;
  }
  if (transaction.append.empty()) return {};
  Statement insert(*this, "INSERT INTO log(idx, term, payload, kind, elapsed, sum) VALUES(?, ?, ?, ?, ?, ?)");
  for (const raft::LogEntry& entry : transaction.append) {
    const std::string sum = row_sum(entry_key(entry), entry.payload);
    insert.bind(entry.index).bind(entry.term).bind_blob(entry.payload).bind(static_cast<std::uint64_t>(entry.kind));
    if (auto done = insert.bind(entry.elapsed).bind_blob(sum).finish("write the log"); !done) return done;
  }
  return {};
}

Status Store::write_task_records(const Transaction& transaction) {
  if (transaction.task_records.empty()) return {};
  Statement put(*this, "INSERT OR REPLACE INTO task_records(id, payload, sum) VALUES(?, ?, ?)");
  Statement erase(*this, "DELETE FROM task_records WHERE id = ?");
  for (const auto& [id, payload] : transaction.task_records) {
    Status done;
    if (payload) {
      const std::string sum = row_sum(record_key(id), *payload);
      done = put.bind_text(id).bind_blob(*payload).bind_blob(sum).finish("write a task record");
    } else {
      done = erase.bind_text(id).finish("erase a task record");
    }
    if (!done) return done;
  }
  return {};
}

}  // namespace dtrain::store
