#include "agent/store/committer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace dtrain::store {

void merge(Transaction& first, Transaction&& later) {
  if (later.forget_log) {
    first.forget_log = true;
    first.hard.reset();
    first.snapshot.reset();
    first.reset_log = false;
    first.truncate_from.reset();
    first.append.clear();
  }
  if (later.formation) first.formation = std::move(later.formation);
  if (later.hard) first.hard = std::move(later.hard);
  // What the later transaction removes from the log need not be written first.
  if (later.snapshot) {
    std::erase_if(first.append, [&](const raft::LogEntry& entry) { return later.reset_log || entry.index <= later.snapshot->index; });
    first.snapshot = std::move(later.snapshot);
    first.reset_log = first.reset_log || later.reset_log;
  }
  if (later.truncate_from) {
    const std::uint64_t from = *later.truncate_from;
    std::erase_if(first.append, [from](const raft::LogEntry& entry) { return entry.index >= from; });
    first.truncate_from = std::min(from, first.truncate_from.value_or(from));
  }
  std::move(later.append.begin(), later.append.end(), std::back_inserter(first.append));
  for (auto& [id, record] : later.task_records) first.task_records.insert_or_assign(id, std::move(record));
}

Committer::Committer(Store& store, DiskWorker& worker, Log& log, OnDone on_done, DiskReserve* reserve)
    : store_(store), worker_(worker), log_(log), on_done_(std::move(on_done)), reserve_(reserve) {}

void Committer::add(node::Persist effect) {
  if (!failed_ && waiting_.tickets.size() >= kWaitingTickets)
    failed_ = Error{ErrorCode::limit, "could not queue a commit: " + std::to_string(kWaitingTickets) + " wait already",
                    "free some space on the disk of the data directory"};
  if (failed_) {
    on_done_(effect.ticket, fail(*failed_));
    return;
  }
  Transaction transaction;
  transaction.forget_log = effect.forget_log;
  transaction.formation = std::move(effect.formation);
  transaction.hard = std::move(effect.hard);
  transaction.snapshot = std::move(effect.snapshot);
  transaction.reset_log = effect.reset_log;
  transaction.truncate_from = effect.truncate_from;
  transaction.append = std::move(effect.append);
  for (auto& [id, record] : effect.put_task_records) transaction.task_records[id] = std::move(record);
  for (auto& id : effect.erase_task_records) transaction.task_records[id] = std::nullopt;
  merge(waiting_.transaction, std::move(transaction));
  waiting_.tickets.push_back(effect.ticket);
}

void Committer::flush(Now now) {
  now_ = now;
  if (in_flight_ || waiting_.tickets.empty() || (retry_at_ != kNever && now.boot < retry_at_)) return;
  retry_at_ = kNever;
  auto batch = std::make_shared<Batch>(std::exchange(waiting_, Batch{}));
  in_flight_ = worker_.post(Lane::commit, [this, batch] {
    Status result = commit(batch->transaction);
    return [this, batch, result] { finished(batch, result); };
  });
  if (!in_flight_) {  // never with one commit in flight at a time, but nothing may get lost
    waiting_ = std::move(*batch);
    retry_at_ = now.boot + kFullRetry;
  }
}

// On the disk worker. Others may take what the reserve gives up before the commit can: so several times.
Status Committer::commit(const Transaction& transaction) {
  Status result = store_.commit(transaction);
  if (reserve_ == nullptr) return result;
  if (result) reserve_->refill();
  while (!result && result.error().code == ErrorCode::limit && reserve_->give()) result = store_.commit(transaction);
  return result;
}

void Committer::finished(std::shared_ptr<Batch> batch, const Status& result) {
  in_flight_ = false;
  if (!result && result.error().code == ErrorCode::limit) {
    note_full(result.error());
    merge(batch->transaction, std::move(waiting_.transaction));
    batch->tickets.insert(batch->tickets.end(), waiting_.tickets.begin(), waiting_.tickets.end());
    waiting_ = std::move(*batch);
    return;
  }
  if (!result) {
    failed_ = result.error();
    const Batch behind = std::exchange(waiting_, Batch{});
    batch->tickets.insert(batch->tickets.end(), behind.tickets.begin(), behind.tickets.end());
  } else if (full_) {
    full_ = false;
    log_.write(LogLevel::info, "disk.space", {{"commits", std::to_string(batch->tickets.size())}});
  }
  for (const std::uint64_t ticket : batch->tickets) on_done_(ticket, result);
}

void Committer::note_full(const Error& error) {
  // now_ is of the last flush, at most one turn old.
  retry_at_ = now_.boot + kFullRetry;
  if (!full_ || now_.boot >= next_full_line_) {
    log_.write(LogLevel::error, "disk.full", {{"error", error.text()}});
    next_full_line_ = now_.boot + kFullLogEvery;
  }
  full_ = true;
}

}  // namespace dtrain::store
