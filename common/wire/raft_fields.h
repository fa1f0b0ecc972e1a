// The order of every raft struct's fields on the wire, and the checks of a decoded one. Append only: docs/protocol.md.
#pragma once

#include <algorithm>

#include "common/wire/positional.h"
#include "common/wire/raft.h"

namespace dtrain::wire {

using positional::Ref;

// Durations are natural numbers of nanoseconds; one that is too large becomes negative here, which is a defect.
template <class V>
void span(V& v, const char* name, const Duration& x) {
  v.number(name, static_cast<std::uint64_t>(x.count()));
}
inline void span(positional::Get& v, const char* name, Duration& x) {
  auto count = static_cast<std::uint64_t>(x.count());
  v.number(name, count);
  x = Duration(static_cast<std::int64_t>(count));
}
inline bool in_range(const Duration& x) { return x >= Duration{} && x <= kMostElapsed; }

template <class V>
void fields(V& v, Ref<V, History> x) {
  v.number("number", x.number);
  v.id("id", x.id);
}
inline const char* defect(History& x) { return x.number > kMostTerm ? "a history out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, Life> x) {
  v.number("number", x.number);
  v.number("mark", x.mark);
}
inline const char* defect(Life& x) { return x.number > kMostTerm ? "a life out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, Configuration> x) {
  v.list("voters", x.voters, kMostVoters);
  v.list("learners", x.learners, kMostLearners);
  v.number("history", x.history);
}
inline const char* defect(Configuration& x) {
  const auto ascending = [](const std::vector<MemberId>& ids) {
    return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
  };
  if (!ascending(x.voters) || !ascending(x.learners)) return "members out of order";
  for (const MemberId& id : x.voters)
    if (x.learns(id)) return "a member that votes and learns";
  return x.history > kMostTerm ? "a history out of range" : nullptr;
}

// An unknown kind must be a defect: a skipped entry would give wrong numbers to all entries after it.
template <class V>
void kind_of(V& v, const LogEntry& x) {
  v.number("kind", static_cast<std::uint16_t>(x.kind));
}
inline void kind_of(positional::Get& v, LogEntry& x) {
  std::uint16_t number = 0;
  v.number("kind", number);
  x.kind = static_cast<EntryKind>(std::min<std::uint16_t>(number, 255));
}

// Without its index, which follows from the request's prev_index.
template <class V>
void fields(V& v, Ref<V, LogEntry> x) {
  v.number("term", x.term);
  kind_of(v, x);
  span(v, "elapsed", x.elapsed);
  v.bytes("payload", x.payload, kEntryBytes);
}

inline const char* defect(LogEntry& x) { return x.kind > enum_last(x.kind) ? "an entry of an unknown kind" : nullptr; }

template <class V>
void fields(V& v, Ref<V, RaftHeader> x) {
  v.nested("history", x.history);
  v.number("term", x.term);
  v.nested("life", x.life);
}
inline const char* defect(RaftHeader& x) { return x.term > kMostTerm ? "a term out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, VoteRequest> x) {
  v.flag("pre", x.pre);
  v.number("term", x.term);
  v.number("last_index", x.last_index);
  v.number("last_term", x.last_term);
}
inline const char* defect(VoteRequest& x) {
  return x.term > kMostTerm || x.last_term > kMostTerm || x.last_index > kMostIndex ? "a vote request out of range" : nullptr;
}

template <class V>
void fields(V& v, Ref<V, VoteReply> x) {
  v.flag("pre", x.pre);
  v.number("term", x.term);
  v.flag("granted", x.granted);
}
inline const char* defect(VoteReply& x) { return x.term > kMostTerm ? "a term out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, AppendRequest> x) {
  v.number("round", x.round);
  v.number("prev_index", x.prev_index);
  v.number("prev_term", x.prev_term);
  v.number("commit", x.commit);
  span(v, "elapsed", x.elapsed);
  v.list("entries", x.entries, kEntriesPerMessage);
}
inline const char* defect(AppendRequest& x) {
  if (x.prev_index > kMostIndex - kEntriesPerMessage || x.prev_term > kMostTerm || x.commit > kMostIndex || !in_range(x.elapsed))
    return "an append request out of range";
  LogEntry before;
  before.index = x.prev_index;
  before.term = x.prev_term;
  const LogEntry* last = &before;
  for (LogEntry& entry : x.entries) {
    entry.index = last->index + 1;
    if (entry.term < last->term || entry.term == 0 || entry.term > kMostTerm) return "entries of terms out of order";
    if (entry.elapsed < last->elapsed || !in_range(entry.elapsed)) return "entries of times out of order";
    last = &entry;
  }
  return nullptr;
}

template <class V>
void fields(V& v, Ref<V, AppendReply> x) {
  v.number("round", x.round);
  v.flag("accepted", x.accepted);
  v.number("match", x.match);
  v.number("prev_index", x.prev_index);
  v.number("hint_index", x.hint_index);
  v.number("hint_term", x.hint_term);
}
inline const char* defect(AppendReply& x) {
  return x.match > kMostIndex || x.prev_index > kMostIndex || x.hint_index > kMostIndex || x.hint_term > kMostTerm
             ? "an append reply out of range"
             : nullptr;
}

template <class V>
void fields(V& v, Ref<V, SnapshotChunk> x) {
  v.number("round", x.round);
  v.number("index", x.index);
  v.number("term", x.term);
  v.nested("configuration", x.configuration);
  span(v, "snapshot_elapsed", x.snapshot_elapsed);
  span(v, "elapsed", x.elapsed);
  v.number("total", x.total);
  v.number("offset", x.offset);
  v.bytes("bytes", x.bytes, kSnapshotChunkBytes);
}
inline const char* defect(SnapshotChunk& x) {
  if (x.index == 0 || x.index > kMostIndex || x.term == 0 || x.term > kMostTerm || !in_range(x.snapshot_elapsed) || !in_range(x.elapsed))
    return "a snapshot out of range";
  if (x.offset > x.total || x.bytes.size() > x.total - x.offset) return "a chunk behind the end of its snapshot";
  return nullptr;
}

template <class V>
void fields(V& v, Ref<V, SnapshotReply> x) {
  v.number("round", x.round);
  v.number("index", x.index);
  v.number("next_offset", x.next_offset);
  v.flag("done", x.done);
}
inline const char* defect(SnapshotReply& x) { return x.index > kMostIndex ? "a snapshot reply out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, TimeoutNow> x) {
  v.number("last_index", x.last_index);
}
inline const char* defect(TimeoutNow& x) { return x.last_index > kMostIndex ? "a hand-over out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, Fenced> x) {
  v.choice("reason", x.reason);
  v.nested("seen", x.seen);
  v.nested("yours", x.yours);
}
template <class V>
void fields(V&, Ref<V, Hello>) {}
template <class V>
void fields(V& v, Ref<V, Welcome> x) {
  v.nested("yours", x.yours);
}

}  // namespace dtrain::wire
