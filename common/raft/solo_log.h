// The replicated log of a cluster with one voter: an entry is committed as soon as it is durable here.
//
// The interface is what the ledger's owner needs of any log: propose, hand over what must be persisted, learn
// what is committed, in order. One Persist is in flight at a time; proposals that arrive meanwhile go
// together in the next (group commit).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/raft/log_entry.h"

namespace dtrain::raft {

class SoloLog {
 public:
  // `last` and `term` of what the disk holds. This life leads in term + 1.
  SoloLog(std::uint64_t last_index, std::uint64_t last_term)
      : last_(last_index), committed_(last_index), term_(last_term + 1) {}

  std::uint64_t term() const { return term_; }
  std::uint64_t committed() const { return committed_; }
  std::size_t pending() const { return waiting_.size() + in_flight_.size(); }

  // Returns the index that the entry will have when it commits.
  std::uint64_t propose(std::string payload);

  // What to persist now, when nothing is in flight and something waits. The caller persists it and calls
  // persisted().
  std::optional<std::vector<LogEntry>> take_batch();

  // The batch in flight is durable: its entries, now committed, in order.
  std::vector<LogEntry> persisted();

  bool in_flight() const { return !in_flight_.empty(); }

 private:
  std::uint64_t last_, committed_, term_;
  std::vector<LogEntry> waiting_, in_flight_;
};

}  // namespace dtrain::raft
