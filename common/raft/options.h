// Raft's numbers. Every duration is of the monotonic clock that counts suspends (CLOCK_BOOTTIME).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/broken_rule.h"
#include "common/base/time.h"

namespace dtrain::raft {

struct RaftOptions {
  // Elections.
  Duration heartbeat = 100ms;
  Duration learner_heartbeat = 500ms;  // to members that do not vote: nobody waits for their answers, and there may be many
  Duration election_min = 1s;          // silence of the leader before an election, drawn anew each time from [min, max)
  Duration election_max = 2s;
  Duration gone_min = 0ms;  // the same after LeaderGone, and between the tries that follow
  Duration gone_max = 60ms;
  Duration gone_retry = 200ms;  // added from the second try on
  Duration check_quorum = 2s;   // a leader that hears from no majority for so long steps down
  Duration stall = 300ms;       // a wake-up later than that after the deadline shows that this process was stopped; it
                                // then concludes nothing from silence until the others have had so long to be heard
  // A member in a new life waits so long for the others to know it before it votes and acknowledges.
  Duration settle = 1s;
  Duration hello_retry = 200ms;  // pause between its questions during that wait
  // A member that hears the leader of a newer history for so long, and meanwhile no leader of its own, gives up its
  // log for that history (docs/consensus.md, rule 14). Longer than any election takes while a majority is alive.
  Duration abandon_history = 10s;
  Duration transfer = 1s;  // a hand-over that takes longer is given up

  // Replication.
  std::size_t message_entries = 1024;     // entries in one message
  std::size_t message_bytes = 256 << 10;  // of entries in one message; a single larger entry goes alone
  std::uint32_t window = 16;              // messages in flight to one follower; further ones wait
  Duration retry = 500ms;                 // a probe, chunk or full window without an answer for so long is sent again
  std::size_t snapshot_chunk_bytes = 256 << 10;
  // Learners that are sent a snapshot at the same time, one chunk in flight to each; further learners wait. Voters do not.
  std::size_t snapshots_under_way = 16;
  std::size_t snapshot_bytes = 256 << 20;  // largest snapshot that is received; a larger one is dropped and counted
  std::uint64_t promote_lag = 16;          // a learner at most so many entries behind may become a voter

  // The log.
  std::size_t proposals = 4096;           // unanswered proposals; further ones are refused as overloaded
  std::size_t persist_bytes = 4 << 20;    // of entries in one Persist; the rest goes in the next
  std::uint64_t snapshot_every = 10'000;  // entries after the snapshot before Outputs::snapshot_wanted
  std::size_t snapshot_every_bytes = 16 << 20;
  std::uint64_t kept_entries = 1'000;  // entries before a snapshot that stay in memory, for followers that are a little behind
  std::size_t kept_bytes = 4 << 20;
  std::uint64_t log_entries = 100'000;  // entries after the snapshot; beyond, proposals are refused as overloaded
  std::size_t log_bytes = 64 << 20;

  // --break: switches one rule off, to show that tests and simulator notice. Empty in production.
  BrokenRule broken_rule{};
};

}  // namespace dtrain::raft
