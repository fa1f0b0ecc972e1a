// Raft's numbers. Every duration is of the monotonic clock that counts suspends (CLOCK_BOOTTIME).
#pragma once

#include <cstdint>
#include <string>

#include "common/base/broken_rule.h"
#include "common/base/time.h"

namespace dtrain::raft {

struct Options {
  // Elections.
  Duration heartbeat = 100ms;
  Duration learner_heartbeat = 500ms;  // to who does not vote: nobody waits for its answer, and there may be many
  Duration election_min = 1s;  // of silence of the leader, drawn anew each time from [min, max)
  Duration election_max = 2s;
  Duration gone_min = 0ms;  // the same after LeaderGone, and between the tries that follow it
  Duration gone_max = 60ms;
  Duration gone_retry = 200ms;  // added from the second try on
  Duration check_quorum = 2s;   // a leader that hears no majority for so long steps down
  Duration stall = 300ms;  // later than that behind our own deadline: we were stopped, and nothing may be
                           // concluded from silence until the others had so long to be heard
  // A member in a new life waits so long for the others to know it before it votes and acknowledges.
  Duration settle = 1s;
  Duration hello_retry = 200ms;  // meanwhile it asks again that often
  // Who hears the leader of a newer history for so long, and in that time none of its own, gives up its log for that
  // history (docs/consensus.md, rule 14). Longer than any election of a majority that is alive.
  Duration abandon_history = 10s;
  Duration transfer = 1s;        // a hand-over that takes longer is given up

  // Replication.
  std::size_t message_entries = 1024;     // most entries in one message
  std::size_t message_bytes = 256 << 10;  // of entries in one message; one larger entry goes alone
  std::uint32_t window = 16;              // messages under way to one follower; further ones wait
  Duration retry = 500ms;  // no answer to a probe, chunk or full window for so long: sent again
  std::size_t snapshot_chunk_bytes = 256 << 10;
  // Learners that are being sent a snapshot at one time, a chunk under way to each; the others wait. Voters do not.
  std::size_t snapshots_under_way = 16;
  std::size_t snapshot_bytes =
      256 << 20;                   // of a snapshot to be received; a larger one is dropped and counted
  std::uint64_t promote_lag = 16;  // a learner at most so many entries behind may become a voter

  // The log.
  std::size_t proposals = 4096;           // without an answer; further ones are refused as overloaded
  std::size_t persist_bytes = 4 << 20;    // of entries in one Persist; the rest goes in the next
  std::uint64_t snapshot_every = 10'000;  // entries behind the snapshot: Outputs::snapshot_wanted
  std::size_t snapshot_every_bytes = 16 << 20;
  std::uint64_t kept_entries = 1'000;  // before a snapshot, in memory, for followers that are a little behind
  std::size_t kept_bytes = 4 << 20;
  std::uint64_t log_entries = 100'000;  // behind the snapshot: beyond, proposals are refused as overloaded
  std::size_t log_bytes = 64 << 20;

  // --break: switches one rule off, to show that tests and simulator notice. Empty in production.
  BrokenRule broken_rule{};
};

}  // namespace dtrain::raft
