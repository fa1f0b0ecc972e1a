// What a leader knows about one follower's log, and how much it may send.
//
//   probe      where the logs agree is not known: one empty request at a time asks
//   replicate  known: entries are sent ahead of the answers, up to a window of messages
//   snapshot   the entries that the follower needs are gone here: the snapshot is sent, chunk by chunk
//
// The same three states as in the published behaviour of etcd's raft; thesis 10.2 on pipelining.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>

#include "common/base/time.h"
#include "common/raft/log_entry.h"

namespace dtrain::raft {

struct Progress {
  enum class State : std::uint8_t { probe, replicate, snapshot };

  Progress(std::uint64_t last_index, Instant now) : next(last_index + 1), heard(now), moved(now) {}

  State state = State::probe;
  std::uint64_t match = 0;                         // entries up to this one are durable there
  std::uint64_t next = 1;                          // the next entry to send; above `match`
  std::uint64_t told = 0;                          // the commit index in the newest message to it
  std::uint64_t round = 0;                         // the newest broadcast that it answered
  Instant heard;                                   // when its last message of this term arrived
  Instant moved;                                   // when it last acknowledged something, or was sent something with nothing else in flight
  Instant spoken{};                                // when it was last sent anything
  bool paused = false;                             // probe, snapshot: waiting for an answer
  std::deque<std::uint64_t> window;                // replicate: last index of each message in flight, ascending
  std::shared_ptr<const StoredSnapshot> snapshot;  // the snapshot that is being sent
  std::uint64_t offset = 0;                        // in the snapshot, of the chunk that it wants next
  bool needs_state = false;                        // the snapshot, though it has the entries: SendState
  std::uint64_t owed = 0;                          // last entry that existed when it got its snapshot; entries up to there are kept for it

  void probe_from(std::uint64_t index) {
    state = State::probe;
    next = std::max(index, match + 1);
    paused = false;
    window.clear();
    snapshot.reset();
    needs_state = false;
    offset = 0;
  }
  void replicate() {
    probe_from(match + 1);
    state = State::replicate;
  }
  void send_snapshot(std::shared_ptr<const StoredSnapshot> which) {
    probe_from(match + 1);
    state = State::snapshot;
    snapshot = std::move(which);
  }
  // The follower has verified the entries up to `index` and made them durable. Returns true if that is more than was known.
  bool acknowledged(std::uint64_t index, Instant now) {
    if (index <= match) return false;
    match = index;
    next = std::max(next, match + 1);
    moved = now;
    while (!window.empty() && window.front() <= index) window.pop_front();
    return true;
  }
  void sent(std::uint64_t last, Instant now) {
    if (window.empty()) moved = now;
    window.push_back(last);
    next = last + 1;
  }
};

}  // namespace dtrain::raft
