// The log in memory, and how much of it is on the disk.
//
// Entries come in at the end, are handed over to be made durable in order, and are durable when that landed.
// An entry that was cut off before it landed is never counted as durable, whatever stands in its place by
// then.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/raft/log_entry.h"

namespace dtrain::raft {

class RaftLog {
 public:
  // What a disk holds: everything is durable. `base` is the entry before the first: index and term.
  RaftLog(std::uint64_t base_index, std::uint64_t base_term, std::vector<LogEntry> entries);

  std::uint64_t first_index() const { return base_index_ + 1; }
  std::uint64_t last_index() const { return base_index_ + entries_.size(); }
  std::uint64_t last_term() const { return entries_.empty() ? base_term_ : entries_.back().term; }
  // 0: not here. The term of the entry before the first is known.
  std::uint64_t term_at(std::uint64_t index) const;
  const LogEntry& at(std::uint64_t index) const;  // first_index() .. last_index()
  std::size_t bytes() const { return bytes_; }    // of the payloads in memory

  void append(LogEntry entry);              // its index must be the next
  void truncate_from(std::uint64_t index);  // first_index() .. last_index()
  void compact_to(std::uint64_t index);     // forgets entries up to it; they need not be handed over any more
  void covered_to(std::uint64_t index);     // a snapshot holds them: not to be handed over; memory keeps them
  void reset(std::uint64_t index, std::uint64_t term);  // nothing but what a snapshot holds

  // The largest index up to which `request` may agree with this log, whose entry there has at most that term
  // (an answer to a request that did not fit saves the sender from going back one by one).
  std::uint64_t last_with_term_at_most(std::uint64_t index, std::uint64_t term) const;

  // ---- durability
  std::uint64_t durable() const { return durable_; }
  std::uint64_t handed() const { return handed_; }
  bool waits() const { return truncate_from_.has_value() || handed_ < last_index(); }
  struct Batch {
    std::optional<std::uint64_t> truncate_from;
    std::vector<LogEntry> entries;
  };
  Batch hand_over(std::size_t most_bytes);  // at least one entry when one waits
  void landed() { durable_ = std::max(durable_, in_flight_); }

 private:
  std::uint64_t base_index_, base_term_;
  std::deque<LogEntry> entries_;
  std::size_t bytes_ = 0;
  // durable_ <= in_flight_ <= handed_ <= last_index()
  std::uint64_t durable_, in_flight_, handed_;
  std::optional<std::uint64_t> truncate_from_;  // the disk may hold entries from there on that are no more
};

}  // namespace dtrain::raft
