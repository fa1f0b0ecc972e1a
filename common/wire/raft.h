// What the voters and learners of one log send each other, and what the log consists of.
//
// encode_raft()/decode_raft() (raft_codec.cpp) write [header, body] as append-only arrays: a shorter array leaves
// defaults, a longer one is cut. Limits are checked before anything is allocated. Numbers that only grow end at
// kMostTerm and kMostIndex, so that adding one never wraps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/limits.h"
#include "common/base/member_id.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::wire {

inline constexpr std::uint64_t kMostTerm = (std::uint64_t{1} << 62) - 1;  // also of lives and histories
inline constexpr std::uint64_t kMostIndex = (std::uint64_t{1} << 62) - 1;
inline constexpr Duration kMostElapsed{(std::int64_t{1} << 62) - 1};
inline constexpr std::size_t kMostVoters = 5;
inline constexpr std::size_t kMostLearners = 250;                      // each costs 20 bytes in every entry that changes the configuration
inline constexpr std::size_t kEntriesPerMessage = 4096;                // more: refused
inline constexpr std::size_t kEntryBytes = limits::kLedgerEntryBytes;  // one entry's payload; longer: refused
inline constexpr std::size_t kSnapshotChunkBytes = 1 << 20;            // longer: refused
inline constexpr std::size_t kRaftMessageBytes = kEntryBytes + (std::size_t{64} << 10);  // larger: dropped unread

// One history of a cluster's log. recover-quorum begins the next; voters of other histories are refused. Ordered by
// number, then id.
struct History {
  std::uint64_t number = 0;  // from 1; 0: none yet
  MemberId id;               // random, so that two recoveries of one history differ
  bool none() const { return number == 0; }
  auto operator<=>(const History&) const = default;
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("high", id.high);
    v("low", id.low);
  }
};

// One run of an agent on its data directory. A directory that was copied, or restored to an older state, counts the
// same number twice: the mark, drawn anew by each run, tells the two apart.
struct Life {
  std::uint64_t number = 0;  // counted on the data directory, from 1
  std::uint64_t mark = 0;    // random
  auto operator<=>(const Life&) const = default;
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("mark", mark);
  }
};

// Who has a copy of the log. Both lists ascending, disjoint, at most kMostVoters and kMostLearners long.
struct Configuration {
  std::vector<MemberId> voters;
  std::vector<MemberId> learners;
  std::uint64_t history = 1;  // number of the history that decided it
  bool operator==(const Configuration&) const = default;
  bool empty() const { return voters.empty() && learners.empty(); }
  bool votes(const MemberId& id) const;
  bool learns(const MemberId& id) const;
  bool has(const MemberId& id) const { return votes(id) || learns(id); }
};
std::string encode_configuration(const Configuration& configuration);  // the payload of a configuration entry
Result<Configuration> decode_configuration(std::string_view bytes);

enum class EntryKind : std::uint8_t {
  command,        // an encoded cluster::Command
  leader,         // the first of each term: empty
  configuration,  // an encoded Configuration, in force as soon as it is in a log
};
constexpr EntryKind enum_last(EntryKind) { return EntryKind::configuration; }

struct LogEntry {
  std::uint64_t index = 0;  // from 1, without gaps
  std::uint64_t term = 0;
  std::string payload;
  EntryKind kind = EntryKind::command;
  Duration elapsed{};  // the ledger's time: of this history, as its leader measured it. Never less than that of the entry before
  bool operator==(const LogEntry&) const = default;
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("term", term);
    v("payload", payload);
    v("kind", kind);
    v("elapsed", elapsed);
  }
};

// The beginning of every message. `sender` is that of the checked PeerHeader and is not sent twice.
struct RaftHeader {
  History history;
  std::uint64_t term = 0;  // the sender's own current term, also in a request to vote and in a refusal
  MemberId sender;
  Life life;  // the sender's
  bool operator==(const RaftHeader&) const = default;
};

// ---- bodies
struct VoteRequest {
  bool pre = false;              // only asks whether a vote would be given: nothing is promised, and no term begins
  std::uint64_t term = 0;        // the term that the sender would lead
  std::uint64_t last_index = 0;  // of the sender's log
  std::uint64_t last_term = 0;
  bool operator==(const VoteRequest&) const = default;
};
struct VoteReply {
  bool pre = false;
  std::uint64_t term = 0;  // of the request
  bool granted = false;
  bool operator==(const VoteReply&) const = default;
};
struct AppendRequest {      // without entries: a heartbeat
  std::uint64_t round = 0;  // number of the leader's broadcast within its term; the reply repeats it
  std::uint64_t prev_index = 0;
  std::uint64_t prev_term = 0;
  std::uint64_t commit = 0;
  Duration elapsed{};             // when it was sent
  std::vector<LogEntry> entries;  // from prev_index + 1 without gaps
  bool operator==(const AppendRequest&) const = default;
};
struct AppendReply {
  std::uint64_t round = 0;
  bool accepted = false;
  std::uint64_t match = 0;       // accepted: durable here, and verified by the request
  std::uint64_t prev_index = 0;  // refused: of the request
  std::uint64_t hint_index = 0;  // refused: the last entry here that the leader may also have
  std::uint64_t hint_term = 0;
  bool operator==(const AppendReply&) const = default;
};
struct SnapshotChunk {
  std::uint64_t round = 0;
  std::uint64_t index = 0;  // the last entry that the snapshot contains
  std::uint64_t term = 0;
  Configuration configuration;
  Duration snapshot_elapsed{};
  Duration elapsed{};       // when it was sent
  std::uint64_t total = 0;  // bytes of the whole state
  std::uint64_t offset = 0;
  std::string bytes;
  bool operator==(const SnapshotChunk&) const = default;
};
struct SnapshotReply {
  std::uint64_t round = 0;
  std::uint64_t index = 0;        // of the snapshot
  std::uint64_t next_offset = 0;  // of the chunk that is wanted next
  bool done = false;              // durable here, or covered by what is already here
  bool operator==(const SnapshotReply&) const = default;
};
struct TimeoutNow {              // the leader hands over: begin an election at once
  std::uint64_t last_index = 0;  // of the leader's log
  bool operator==(const TimeoutNow&) const = default;
};
enum class FenceReason : std::uint8_t { stale_life, other_history };
constexpr FenceReason enum_last(FenceReason) { return FenceReason::other_history; }
struct Fenced {  // the sender does not count the receiver, which then stops voting
  FenceReason reason = FenceReason::stale_life;
  Life seen;   // stale_life: the life that the sender knows
  Life yours;  // the life in the refused message
  bool operator==(const Fenced&) const = default;
};
struct Hello {  // from a voter in a new life to the other voters
  bool operator==(const Hello&) const = default;
};
struct Welcome {  // the sender knows this life durably
  Life yours;
  bool operator==(const Welcome&) const = default;
};

using RaftBody =
    std::variant<VoteRequest, VoteReply, AppendRequest, AppendReply, SnapshotChunk, SnapshotReply, TimeoutNow, Fenced, Hello, Welcome>;
inline constexpr std::uint16_t kFirstRaftType = 64;  // types 64 to 127 are the log's
inline constexpr std::size_t kRaftTypes = std::variant_size_v<RaftBody>;
inline std::uint16_t type_of(const RaftBody& body) { return static_cast<std::uint16_t>(kFirstRaftType + body.index()); }

struct RaftMessage {
  RaftHeader header;
  RaftBody body;
  bool operator==(const RaftMessage&) const = default;
};

std::string encode_raft(const RaftMessage& message);
Result<RaftMessage> decode_raft(std::uint16_t type, const MemberId& sender, std::string_view bytes);
std::size_t encoded_size(const LogEntry& entry);  // exact, without encoding
std::size_t encoded_size(const RaftMessage& message);

}  // namespace dtrain::wire
