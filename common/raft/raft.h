// Raft: 1, 3 or 5 voters and some learners agree on one log, whichever minority of the voters is lost.
//
// Raft as in Ongaro, "Consensus: Bridging Theory and Practice" (PhD thesis, Stanford 2014): elections 3.4 to 3.6 with
// pre-vote (9.6) and check-quorum (6.2), membership by single server (4.1 to 4.2), leadership transfer (3.10), log
// compaction (5), linearisable reads by read index (6.4). docs/consensus.md lists the rules that we added.
//
// A sans-IO core: it is told the time and what happened, and answers with what to do. Single-threaded; owns no clock,
// descriptor or thread. It trusts a peer no further than Raft must (malformed messages are counted and dropped, never
// CHECKed), but voters are not Byzantine: whoever holds a voter's key can lie to the log.
//
// The owner must carry out Outputs in the order of the steps; make each Persist atomic and answer it with exactly one
// Persisted or PersistFailed with its token, unless the process ends; and apply committed entries, in order, before
// the next step. Messages may be lost, repeated, reordered and delayed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/time.h"
#include "common/raft/log_entry.h"
#include "common/raft/options.h"
#include "common/wire/raft.h"

namespace dtrain::raft {

struct Self {
  MemberId id;             // a machine that lost its disk comes back with another id
  std::uint64_t life = 1;  // counted on the data directory, from 1. The life's mark is drawn from Rng, which every
                           // run of an agent must therefore seed differently
  bool may_vote = true;    // false: a disk error was seen in this boot of the machine
};

// ---- what happened
struct Tick {};  // deadline() was reached
// `message.header.sender` is authenticated.
struct Received {
  wire::RaftMessage message;
};
struct Persisted {
  std::uint64_t token = 0;
};
// After this, the member neither votes nor acknowledges nor leads.
struct PersistFailed {
  std::uint64_t token = 0;
};
// `number` is chosen by the owner and returned with the answer.
struct Propose {
  std::uint64_t number = 0;
  std::string payload;
};
struct ReadAsked {
  std::uint64_t number = 0;
};
enum class ChangeKind : std::uint8_t {
  add_learner,
  promote,  // a learner becomes a voter; refused until it has caught up
  demote,   // a voter becomes a learner
  remove,   // a voter or learner leaves the configuration
};
constexpr ChangeKind enum_last(ChangeKind) { return ChangeKind::remove; }
struct ChangeAsked {
  std::uint64_t number = 0;
  ChangeKind kind{};
  MemberId member;
};
// Hands leadership to the voter that has most of the log. The outcome shows in Outputs::leadership.
struct TransferAsked {
  MemberId to;
};
// A new connection to that member is refused: its process is gone.
struct LeaderGone {
  MemberId member;
};
// The owner's state after applying the entry `index`.
struct Snapshotted {
  std::uint64_t index = 0;
  std::string state;
};

// recover-quorum: begins a new history of this member alone, with its log including uncommitted entries; entries that
// only others have are lost. An operator vouches that a majority of the voters is lost for good. `mark` must be
// random. Only writes a line of the log where a leader is heard, on a member that does not vote (mute()), and on one
// without a log.
struct Recover {
  MemberId mark;
};

// The owner can, or cannot, act as a leader must. While it cannot, this member keeps its log and votes, but stands
// for no election and gives up leadership.
struct MayLead {
  bool may = true;
};

// The owner's state is not what the entries lead to. Until a snapshot of the leader has replaced it, one that comes is taken though the
// entries that it covers are here: Outputs::installed, then all committed entries behind it anew. The log itself is kept, with all that
// this member has acknowledged.
struct WantState {};
// Without effect on who does not lead, and where that member is none. Its state is replaced by the newest snapshot that there is here, if
// it wants that (WantState); else it only says that it has all of it.
struct SendState {
  MemberId to;
};

using Input = std::variant<Tick, Received, Persisted, PersistFailed, Propose, ReadAsked, ChangeAsked, TransferAsked, LeaderGone,
                           Snapshotted, Recover, MayLead, WantState, SendState>;

// ---- what to do
struct Send {
  MemberId to;
  wire::RaftMessage message;
};

// Make this durable as one transaction, in this order, then send `sends`, then answer with the token. At most one
// Persist is in flight; what comes meanwhile goes together in the next. store() below is the reference.
struct Persist {
  std::uint64_t token = 0;  // from 1
  bool forget = false;      // first drop all that is on the disk
  std::optional<HardState> hard;
  std::optional<StoredSnapshot> snapshot;      // replaces the older one and all entries up to its index
  bool reset_log = false;                      // with a snapshot: drop all entries
  std::optional<std::uint64_t> truncate_from;  // drop the entries from this index on
  std::vector<LogEntry> entries;               // appended
  std::vector<Send> sends;                     // messages that promise what is durable only now
};
void store(Stored& disk, const Persist& persist);

enum class Refusal : std::uint8_t {
  none,
  not_leader,        // ask Answer::leader instead
  not_ready,         // this member leads, but its first entry is not committed yet: retry soon
  transferring,      // leadership is being handed over: retry soon
  overloaded,        // too many proposals or entries wait
  too_large,         // payload above wire::kEntryBytes
  change_under_way,  // only one change at a time
  not_caught_up,     // the learner is too far behind
  no_such_member,
  already,     // the member is in that state already
  last_voter,  // the last voter cannot leave
  full,        // there is no room for another voter or learner
  unknown,     // leadership was lost: the entry may or may not be committed. Repeat with the same request id
};
constexpr Refusal enum_last(Refusal) { return Refusal::unknown; }
const char* to_string(Refusal refusal);  // "not-leader"

// A Propose or ChangeAsked gets exactly one answer, unless the process ends: committed (its entry is in `committed`
// of the same step), or refused. A ReadAsked: reads may be served once `index` is applied; or refused.
struct Answer {
  std::uint64_t number = 0;
  Refusal refusal = Refusal::none;
  std::uint64_t index = 0;
  std::uint64_t term = 0;  // Propose, ChangeAsked: term of the entry
  MemberId leader;         // not_leader: the leader, if known
  bool read = false;       // this answers a ReadAsked
};

enum class Role : std::uint8_t { follower, pre_candidate, candidate, leader };
constexpr Role enum_last(Role) { return Role::leader; }
const char* to_string(Role role);
struct Leadership {  // set if it changed in this step
  std::uint64_t term = 0;
  Role role{};
  MemberId leader;     // none: not known
  bool ready = false;  // this member leads and its own first entry is applied: it may serve and act
};

struct Outputs {
  std::vector<Send> sends;  // may be sent at once
  std::optional<Persist> persist;
  // To be handled before all below: the log was given up for that of a newer history, and the owner's state is that
  // before the first entry.
  bool forgotten = false;
  std::optional<StoredSnapshot> installed;  // replaces the owner's state; comes before `committed`
  std::vector<LogEntry> committed;          // in order, each once per life; after a start they begin after the stored snapshot
  std::vector<Answer> answers;
  std::optional<Leadership> leadership;
  bool snapshot_wanted = false;  // the log is long: a Snapshotted is welcome
  void clear() { *this = {}; }
};

// ---- what is known
struct FollowerView {
  MemberId id;
  bool voter = false;
  std::uint64_t match = 0, next = 0;
  bool snapshot = false;  // it is being sent one
  Duration silent{};      // since its last message
  bool waits = false;     // it waits for its turn to be sent one (RaftOptions::snapshots_under_way)
};
struct Counters {
  std::uint64_t elections = 0,  // terms that this member began
      pre_elections = 0,        // pre-votes that it asked for
      stepped_down = 0,
                dropped = 0,  // malformed messages
      fenced = 0,             // messages of old lives and of other histories
      appends_refused = 0,    // by this follower, because its log differed
      snapshots_sent = 0, snapshots_installed = 0, persists = 0, overloaded = 0,
                histories_given_up = 0;  // logs given up for that of a newer history
};
// Why a member does not vote.
enum class Mute : std::uint8_t { none, disk_failed, stale_life };
constexpr Mute enum_last(Mute) { return Mute::stale_life; }
const char* to_string(Mute mute);

class Raft {
 public:
  // `stored` comes from store(), found() or recovered(); empty: the member waits to be added.
  Raft(Self self, RaftOptions options, Rng rng, Log& log, Stored stored);
  ~Raft();
  Raft(Raft&&) noexcept;

  // Never blocks, never throws. The first call starts the member at `now` (with any input; usually Tick{}). Appends
  // to `out`. `more`: another step follows at this instant, and what must become durable waits for it, so that all
  // goes in one Persist.
  void step(Instant now, const Input& input, Outputs& out, bool more = false);
  Instant deadline() const;  // the earliest useful Tick; kNever when nothing waits

  const MemberId& id() const;
  const Life& life() const;
  const History& history() const;
  std::uint64_t term() const;
  Role role() const;
  bool ready() const;                          // it leads, and its own first entry is committed
  const MemberId& leader() const;              // none: not known
  Instant heard() const;                       // when the leader was last heard; not while this member leads
  Mute mute() const;                           // none: this member votes
  bool settled() const;                        // all others know this life, or have had RaftOptions::settle to object
  const Configuration& configuration() const;  // the one in force: the newest in the log
  std::uint64_t commit() const;
  std::uint64_t first_index() const;  // of the entries in memory
  std::uint64_t last_index() const;
  std::uint64_t durable_index() const;
  std::uint64_t snapshot_index() const;                    // 0: none
  std::uint64_t term_at(std::uint64_t index) const;        // 0: not in memory
  Duration elapsed(Instant now) const;                     // the ledger's time
  std::vector<FollowerView> followers(Instant now) const;  // of a leader; ascending by id
  const Counters& counters() const;
  std::size_t memory_bytes() const;  // of log, snapshot and queues, for the bounds of the simulator

  class Core;  // raft/core.h

 private:
  std::unique_ptr<Core> core_;
};

// The stored log that each founder begins with: the same on all of them, each in its own directory. At most kMostVoters.
Stored found(const History& history, const Configuration& configuration);
// The result of Recover, made from a log that no Raft runs on.
Stored recovered(Stored survivor, const MemberId& self, const MemberId& mark);

}  // namespace dtrain::raft
