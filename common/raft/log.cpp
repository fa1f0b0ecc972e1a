#include "common/raft/log.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace dtrain::raft {

RaftLog::RaftLog(std::uint64_t base_index, std::uint64_t base_term, std::vector<LogEntry> entries)
    : base_index_(base_index), base_term_(base_term), durable_(0), in_flight_(0), handed_(0) {
  for (LogEntry& entry : entries) append(std::move(entry));
  durable_ = in_flight_ = handed_ = last_index();
}

std::uint64_t RaftLog::term_at(std::uint64_t index) const {
  if (index == base_index_) return base_term_;
  if (index < base_index_ || index > last_index()) return 0;
  return entries_[index - base_index_ - 1].term;
}

const LogEntry& RaftLog::at(std::uint64_t index) const {
  CHECK(index > base_index_ && index <= last_index());
  return entries_[index - base_index_ - 1];
}

void RaftLog::append(LogEntry entry) {
  CHECK(entry.index == last_index() + 1);
  bytes_ += entry.payload.size();
  entries_.push_back(std::move(entry));
}

void RaftLog::truncate_from(std::uint64_t index) {
  CHECK(index > base_index_ && index <= last_index());
  while (last_index() >= index) {
    bytes_ -= entries_.back().payload.size();
    entries_.pop_back();
  }
  if (handed_ >= index) truncate_from_ = std::min(truncate_from_.value_or(index), index);
  handed_ = std::min(handed_, index - 1);
  in_flight_ = std::min(in_flight_, index - 1);
  durable_ = std::min(durable_, index - 1);
}

void RaftLog::compact_to(std::uint64_t index) {
  CHECK(index <= handed_);
  if (index <= base_index_) return;
  base_term_ = term_at(index);
  while (base_index_ < index) {
    bytes_ -= entries_.front().payload.size();
    entries_.pop_front();
    ++base_index_;
  }
}

void RaftLog::covered_to(std::uint64_t index) {
  CHECK(index <= last_index());
  handed_ = std::max(handed_, index);
}

void RaftLog::reset(std::uint64_t index, std::uint64_t term) {
  entries_.clear();
  bytes_ = 0;
  base_index_ = handed_ = index;
  base_term_ = term;
  durable_ = in_flight_ = 0;
  truncate_from_.reset();
}

std::uint64_t RaftLog::last_with_term_at_most(std::uint64_t index, std::uint64_t term) const {
  index = std::min(index, last_index());
  while (index > base_index_ && term_at(index) > term) --index;
  return index;
}

RaftLog::Batch RaftLog::hand_over(std::size_t most_bytes) {
  Batch batch{std::exchange(truncate_from_, std::nullopt), {}};
  for (std::size_t bytes = 0; handed_ < last_index(); ++handed_) {
    const LogEntry& entry = at(handed_ + 1);
    bytes += entry.payload.size();
    if (!batch.entries.empty() && bytes > most_bytes) break;
    batch.entries.push_back(entry);
  }
  in_flight_ = handed_;
  return batch;
}

}  // namespace dtrain::raft
