// Raft: 1, 3 or 5 voters and some learners agree on one log, whichever minority of them is lost.
//
// Raft as in Ongaro, "Consensus: Bridging Theory and Practice" (PhD thesis, Stanford 2014): elections 3.4
// to 3.6 with pre-vote (9.6) and check-quorum (6.2), membership by single server (4.1 to 4.2), leadership
// transfer (3.10), log compaction (5), linearisable reads by read index (6.4). docs/consensus.md lists the
// rules that are ours.
//
// A sans-IO core: told the time and what happened, it answers with what to do. Single-threaded; owns no
// clock, descriptor or thread. It trusts nothing that a peer says beyond what Raft needs (its bytes are
// counted and dropped, never CHECKed), but voters are not Byzantine: who holds a voter's key can lie to the
// log.
//
// What the owner promises: Outputs are carried out in the order of the steps; a Persist is atomic, and it is
// answered by exactly one Persisted or PersistFailed with its token, unless the process ends; committed
// entries are applied, in order, before the next step. Messages may be lost, repeated, reordered and delayed.
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
  MemberId id;             // a machine that lost its disk comes back with another
  std::uint64_t life = 1;  // counted on the data directory; at least 1. The life's mark is drawn from Rng,
                           // which every run of an agent must therefore seed differently
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
// This member votes, acknowledges and leads no more.
struct PersistFailed {
  std::uint64_t token = 0;
};
// `number`: the owner's, told again with the answer.
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
  remove,   // a voter or learner
};
constexpr ChangeKind enum_last(ChangeKind) {
  return ChangeKind::remove;
}
struct ChangeAsked {
  std::uint64_t number = 0;
  ChangeKind kind{};
  MemberId member;
};
// To nobody in particular: the voter that has most of the log. The outcome shows in Outputs::leadership.
struct TransferAsked {
  MemberId to;
};
// A new connection to it is refused: its process is gone.
struct LeaderGone {
  MemberId member;
};
// The owner's state after entry `index`, which is applied.
struct Snapshotted {
  std::uint64_t index = 0;
  std::string state;
};

// recover-quorum: this member's log, also what was not committed, begins a new history of this member alone; what it did
// not have is lost. An operator's word that no majority of the voters is there or will ever be. `mark` must be random.
// Without effect but a line of the log where a leader is heard, on who does not vote (mute()), and on who has no log.
struct Recover {
  MemberId mark;
};

// The owner can, or cannot, act as a leader must: while it cannot, this member keeps its log and votes, but stands for no election, and
// gives up leading.
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

using Input = std::variant<Tick, Received, Persisted, PersistFailed, Propose, ReadAsked, ChangeAsked,
                           TransferAsked, LeaderGone, Snapshotted, Recover, MayLead, WantState, SendState>;

// ---- what to do
struct Send {
  MemberId to;
  wire::RaftMessage message;
};

// Make this durable as one transaction, in this order, then send `sends`, then answer with the token. At most
// one is under way; what comes meanwhile goes together in the next. store() below is the reference.
struct Persist {
  std::uint64_t token = 0;  // from 1
  bool forget = false;      // all that is on the disk goes before what follows
  std::optional<HardState> hard;
  std::optional<StoredSnapshot> snapshot;      // replaces the older one; entries up to its index go
  bool reset_log = false;                      // with a snapshot: all entries go
  std::optional<std::uint64_t> truncate_from;  // entries from this index on go
  std::vector<LogEntry> entries;               // appended
  std::vector<Send> sends;                     // that say what is durable only now
};
void store(Stored& disk, const Persist& persist);

enum class Refusal : std::uint8_t {
  none,
  not_leader,        // ask Answer::leader
  not_ready,         // leads, but its first entry is not committed yet: soon
  transferring,      // hands leadership over: ask again soon
  overloaded,        // too much waits
  too_large,         // payload above wire::kEntryBytes
  change_under_way,  // one at a time
  not_caught_up,     // the learner is too far behind
  no_such_member,
  already,     // the member is that
  last_voter,  // cannot go
  full,        // no room for another voter or learner
  unknown,     // leadership was lost: may or may not be committed. Repeat with the same request id
};
constexpr Refusal enum_last(Refusal) {
  return Refusal::unknown;
}
const char* to_string(Refusal refusal);  // "not-leader"

// Of a Propose or ChangeAsked, exactly one, unless the process ends: committed (its entry is in `committed`
// of the same step), or refused. Of a ReadAsked: what is applied up to `index` may be served; or refused.
struct Answer {
  std::uint64_t number = 0;
  Refusal refusal = Refusal::none;
  std::uint64_t index = 0;
  std::uint64_t term = 0;  // Propose, ChangeAsked: of the entry
  MemberId leader;         // not_leader: if known
  bool read = false;       // of a ReadAsked
};

enum class Role : std::uint8_t { follower, pre_candidate, candidate, leader };
constexpr Role enum_last(Role) {
  return Role::leader;
}
const char* to_string(Role role);
struct Leadership {  // changed in this step
  std::uint64_t term = 0;
  Role role{};
  MemberId leader;     // none: not known
  bool ready = false;  // leads and has applied its own first entry: may serve and act
};

struct Outputs {
  std::vector<Send> sends;  // need nothing durable
  std::optional<Persist> persist;
  // Before all below: the log was given up for that of a newer history. The owner's state is that before the first entry.
  bool forgotten = false;
  std::optional<StoredSnapshot> installed;  // replaces the owner's state; comes before `committed`
  std::vector<LogEntry>
      committed;  // in order, each once per life: after a start they begin behind the stored snapshot
  std::vector<Answer> answers;
  std::optional<Leadership> leadership;
  bool snapshot_wanted = false;  // the log is long: Snapshotted is welcome
  void clear() { *this = {}; }
};

// ---- what is known
struct FollowerView {
  MemberId id;
  bool voter = false;
  std::uint64_t match = 0, next = 0;
  bool snapshot = false;  // gets one
  Duration silent{};      // since it was heard last
  bool waits = false;     // for its turn to be sent one (Options::snapshots_under_way)
};
struct Counters {
  std::uint64_t elections = 0,  // terms that this member began
      pre_elections = 0,        // pre-votes it asked for
      stepped_down = 0,
                dropped = 0,  // messages that made no sense
      fenced = 0,             // messages of old lives and other histories
      appends_refused = 0,    // by this follower: its log differed
      snapshots_sent = 0, snapshots_installed = 0, persists = 0, overloaded = 0,
                histories_given_up = 0;  // for a newer one
};
// Why a member does not vote.
enum class Mute : std::uint8_t { none, disk_failed, stale_life };
constexpr Mute enum_last(Mute) {
  return Mute::stale_life;
}
const char* to_string(Mute mute);

class Raft {
 public:
  // `stored` must be what store() made, or one of found() and recovered(), or empty: a member that waits to
  // be added.
  Raft(Self self, Options options, Rng rng, Log& log, Stored stored);
  ~Raft();
  Raft(Raft&&) noexcept;

  // Never blocks, never throws. The first call starts the member at `now` (any input; Tick{} is usual).
  // Appends to `out`. `more`: another step follows at this instant: what must become durable waits for it, so that all
  // of it goes together.
  void step(Instant now, const Input& input, Outputs& out, bool more = false);
  Instant deadline() const;  // earliest useful Tick; kNever when nothing waits

  const MemberId& id() const;
  const Life& life() const;
  const History& history() const;
  std::uint64_t term() const;
  Role role() const;
  bool ready() const;                          // leads, and its own first entry is committed
  const MemberId& leader() const;              // none: not known
  Instant heard() const;                       // the leader, last; not while this one leads
  Mute mute() const;                           // none: it votes
  bool settled() const;                        // all others know its life, or had Options::settle to object to it
  const Configuration& configuration() const;  // in force: the newest in the log
  std::uint64_t commit() const;
  std::uint64_t first_index() const;  // of what is in memory
  std::uint64_t last_index() const;
  std::uint64_t durable_index() const;
  std::uint64_t snapshot_index() const;                    // 0: none
  std::uint64_t term_at(std::uint64_t index) const;        // 0: not in memory
  Duration elapsed(Instant now) const;                     // the ledger's time
  std::vector<FollowerView> followers(Instant now) const;  // of a leader; by id
  const Counters& counters() const;
  std::size_t memory_bytes() const;  // of log, snapshot and queues, for the bounds of the simulator

  class Core;  // raft/core.h

 private:
  std::unique_ptr<Core> core_;
};

// What the founders of a log begin with: the same on each, in their own directory. At most kMostVoters.
Stored found(const History& history, const Configuration& configuration);
// What Recover makes, of a log that no Raft runs on.
Stored recovered(Stored survivor, const MemberId& self, const MemberId& mark);

}  // namespace dtrain::raft
