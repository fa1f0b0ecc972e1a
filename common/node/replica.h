// This node's copy of the replicated log: owns Raft and gathers what its steps want, so that all of one turn of Node
// goes to the disk together (group commit).
//
// A copy that founds its log writes the first entry with the first commit: before that nothing of it is promised to
// anybody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/raft/raft.h"

namespace dtrain::node {

// Proposals without an answer. Requests of users are refused long before (limits::kPendingProposals); beside them the
// coordinator has at most one for each job, and a host one report in each turn.
inline constexpr std::size_t kProposals = 65'536;

class Replica {
 public:
  // `found`: a disk without a history (empty, or with the log of a version before the council) begins one of this node
  // alone, with that id. Unset: it waits to be added.
  Replica(raft::Self self, raft::Options options, Rng rng, Log& log, raft::Stored stored, std::optional<MemberId> found);

  // All of a turn, then flush(). What is committed must be taken before the next step.
  void step(Instant now, const raft::Input& input);
  // The index that the entry will have when it commits; 0: refused.
  std::uint64_t propose(Instant now, std::string payload);
  // After the last step of a turn: what must become durable is in the next take().
  void flush(Instant now);
  bool dirty() const { return dirty_; }
  // What the steps want since the last call; nothing: nothing. Of `persist` only after flush().
  std::optional<raft::Outputs> take();

  const raft::Raft& raft() const { return raft_; }
  Instant deadline() const { return raft_.deadline(); }
  // The coordinator's fence: (history, term) in one number. Terms go on over histories, so that a later history is
  // always the larger number.
  std::uint64_t epoch() const { return (raft_.history().number << 32) - (1ull << 32) + raft_.term(); }
  // Every durable entry is committed: there is no other voter.
  bool alone() const;
  std::uint64_t pending() const { return raft_.last_index() - raft_.commit(); }

 private:
  std::vector<raft::LogEntry> unwritten_;  // of a log that is being founded; its hard state is raft_'s
  raft::Raft raft_;
  raft::Outputs out_;
  bool dirty_ = false;
};

}  // namespace dtrain::node
