// The log in memory, and how much of it is on the disk.
//
// Entries are appended, handed over in order to be made durable, and are durable once the write has landed. An entry
// that was cut off before its write landed never counts as durable, whatever entry took its place.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "common/raft/log_entry.h"

namespace dtrain::raft {

class RaftLog {
 public:
  // The log as read from a disk: all of it is durable. `base` is index and term of the entry before the first.
  RaftLog(std::uint64_t base_index, std::uint64_t base_term, std::vector<LogEntry> entries);

  std::uint64_t first_index() const { return base_index_ + 1; }
  std::uint64_t last_index() const { return base_index_ + entries_.size(); }
  std::uint64_t last_term() const { return entries_.empty() ? base_term_ : entries_.back().term; }
  // Returns 0 for an entry that is not here. The term of the entry before the first is known.
  std::uint64_t term_at(std::uint64_t index) const;
  const LogEntry& at(std::uint64_t index) const;  // first_index() .. last_index()
  std::size_t bytes() const { return bytes_; }    // size of the payloads in memory

  void append(LogEntry entry);              // its index must be the next one
  void truncate_from(std::uint64_t index);  // first_index() .. last_index()
  void compact_to(std::uint64_t index);     // forgets the entries up to that index; they need not be handed over any more
  void covered_to(std::uint64_t index);     // a snapshot holds the entries up to that index: they are not handed over, but stay in memory
  void reset(std::uint64_t index, std::uint64_t term);  // drops all entries; a snapshot holds those up to `index`

  // The largest index, at most `index`, whose entry here has at most that term. In an answer to a request that did
  // not match, it saves the leader from going back one entry at a time.
  std::uint64_t last_with_term_at_most(std::uint64_t index, std::uint64_t term) const;

  // ---- durability
  std::uint64_t durable() const { return durable_; }
  std::uint64_t handed() const { return handed_; }
  bool waits() const { return truncate_from_.has_value() || handed_ < last_index(); }
  struct Batch {
    std::optional<std::uint64_t> truncate_from;
    std::vector<LogEntry> entries;
  };
  Batch hand_over(std::size_t most_bytes);  // at least one entry if one waits
  void landed() { durable_ = std::max(durable_, in_flight_); }

 private:
  std::uint64_t base_index_, base_term_;
  std::deque<LogEntry> entries_;
  std::size_t bytes_ = 0;
  // durable_ <= in_flight_ <= handed_ <= last_index()
  std::uint64_t durable_, in_flight_, handed_;
  std::optional<std::uint64_t> truncate_from_;  // the disk may hold entries from that index on that were cut off
};

}  // namespace dtrain::raft
