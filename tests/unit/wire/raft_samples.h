// Raft messages of every kind for tests and fuzzers: fixed ones whose bytes are golden, and ones drawn from a
// seeded Rng.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/rng.h"
#include "common/wire/raft.h"

namespace dtrain::test {

using namespace wire;

inline RaftHeader fixed_raft_header() { return {{3, {0x1122, 0x3344}}, 70'000, {0xaaaa, 0xbbbb}, {9, 0xfeedfeedfeedfeed}}; }
inline Configuration fixed_configuration() { return {{{1, 1}, {2, 2}, {3, 3}}, {{4, 4}}}; }

inline std::vector<std::pair<std::string, RaftBody>> fixed_raft_bodies() {
  AppendRequest append{5, 10, 69'999, 9, 3s, {}};
  append.entries.push_back({11, 69'999, "command", EntryKind::command, 2s});
  append.entries.push_back({12, 70'000, "", EntryKind::leader, 2500ms});
  append.entries.push_back({13, 70'000, encode_configuration(fixed_configuration()), EntryKind::configuration, 3s});
  return {
      {"vote_request", VoteRequest{true, 70'001, 300, 69'999}},
      {"vote_reply", VoteReply{true, 70'001, true}},
      {"append_request", append},
      {"append_reply", AppendReply{5, true, 13, 10, 0, 0}},
      {"snapshot_chunk", SnapshotChunk{6, 200, 69'000, fixed_configuration(), 1s, 4s, 8, 3, "state"}},
      {"snapshot_reply", SnapshotReply{6, 200, 8, true}},
      {"timeout_now", TimeoutNow{13}},
      {"fenced", Fenced{FenceReason::other_history, {9, 1}, {8, 2}}},
      {"hello", Hello{}},
      {"welcome", Welcome{{9, 0xfeedfeedfeedfeed}}},
  };
}

// Small numbers, so that messages fit to each other and to what a member has; sometimes large ones.
class RaftSampler {
 public:
  explicit RaftSampler(std::uint64_t seed) : rng_(seed) {}

  RaftMessage message() { return {header(), body(rng_.below(kRaftTypes))}; }
  RaftHeader header() {
    return {{rng_.chance(1, 20) ? number() : 1, {7, rng_.chance(1, 20) ? 8u : 7u}}, number(), member(), {number(), rng_.below(3)}};
  }
  RaftBody body(std::uint64_t which) {
    switch (which) {
      case 0: return VoteRequest{flag(), number(), number(), number()};
      case 1: return VoteReply{flag(), number(), flag()};
      case 2: return append();
      case 3: return AppendReply{number(), flag(), number(), number(), number(), number()};
      case 4: return chunk();
      case 5: return SnapshotReply{number(), number(), number(), flag()};
      case 6: return TimeoutNow{number()};
      case 7: return Fenced{flag() ? FenceReason::stale_life : FenceReason::other_history, {number(), rng_.below(3)}, {number(), 1}};
      case 8: return Hello{};
      default: return Welcome{{number(), rng_.below(3)}};
    }
  }
  Configuration configuration() {
    Configuration out;
    for (std::uint64_t id = 1; id <= 6; ++id) {
      if (out.voters.size() < kMostVoters && rng_.chance(1, 2)) out.voters.push_back({id, id});
      else if (rng_.chance(1, 4)) out.learners.push_back({id, id});
    }
    return out;
  }

 private:
  bool flag() { return rng_.chance(1, 2); }
  MemberId member() {
    const std::uint64_t id = 1 + rng_.below(6);
    return {id, id};
  }
  std::uint64_t number() { return rng_.chance(1, 40) ? rng_.next() >> (2 + rng_.below(62)) : rng_.below(12); }
  AppendRequest append() {
    AppendRequest out{number(), rng_.chance(1, 50) ? kMostIndex - kEntriesPerMessage : rng_.below(12), rng_.below(6), number(), {}, {}};
    std::uint64_t term = std::max<std::uint64_t>(out.prev_term, 1);
    for (std::uint64_t count = rng_.below(5); out.entries.size() < count;) {
      term += rng_.below(2);
      LogEntry entry{out.prev_index + out.entries.size() + 1, term, "p", EntryKind::command, Duration(term)};
      if (rng_.chance(1, 5)) entry.kind = EntryKind::configuration, entry.payload = encode_configuration(configuration());
      if (rng_.chance(1, 50)) entry.kind = EntryKind::configuration;
      out.entries.push_back(std::move(entry));
    }
    return out;
  }
  SnapshotChunk chunk() {
    const std::uint64_t total = rng_.chance(1, 20) ? number() + 4 : 4, offset = rng_.below(5);
    return {number(),        1 + number(), 1 + rng_.below(8),
            configuration(), Duration(5),  Duration(6),
            total,           offset,       std::string(rng_.below(total - offset + 1) % 5, 's')};
  }
  Rng rng_;
};

}  // namespace dtrain::test
