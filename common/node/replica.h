// This node's copy of the replicated log: owns Raft and gathers the outputs of its steps, so that all of one turn of
// Node goes to the disk together (group commit).
//
// A copy that founds its log writes the first entry together with the first commit; before that, nobody has been
// promised anything of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/raft/raft.h"

namespace dtrain::node {

// Proposals in flight. Requests of users are refused long before (limits::kPendingProposals); besides, the
// coordinator has at most one proposal for each job, and a host one report in each turn.
inline constexpr std::size_t kProposals = 65'536;

class Replica {
 public:
  // `found`: if the disk has no history (it is empty, or has a log from a version before the council), begin a
  // history with that id and this node alone. Unset: wait until the leader adds this node.
  Replica(raft::Self self, raft::RaftOptions options, Rng rng, Log& log, raft::Stored stored, std::optional<MemberId> found);

  // All steps of a turn, then flush(). What is committed must be taken before the next step.
  void step(Instant now, const raft::Input& input);
  // Returns the index that the entry will have when it commits, or 0 if it was refused.
  std::uint64_t propose(Instant now, std::string payload);
  // To be called after the last step of a turn: the next take() then returns what must become durable.
  void flush(Instant now);
  bool dirty() const { return dirty_; }
  // Returns the outputs of the steps since the last call; nullopt: there are none. `persist` is filled in only after flush().
  std::optional<raft::Outputs> take();

  const raft::Raft& raft() const { return raft_; }
  Instant deadline() const { return raft_.deadline(); }
  // The coordinator's fence: history and term in one number. Terms continue over histories, and a later history
  // always gives the larger number.
  std::uint64_t epoch() const { return (raft_.history().number << 32) - (1ull << 32) + raft_.term(); }
  // True if there is no other voter, so that every durable entry is committed.
  bool alone() const;
  std::uint64_t pending() const { return raft_.last_index() - raft_.commit(); }

 private:
  std::vector<raft::LogEntry> unwritten_;  // entries of a log that is being founded; its hard state is that of raft_
  raft::Raft raft_;
  raft::Outputs out_;
  bool dirty_ = false;
};

}  // namespace dtrain::node
