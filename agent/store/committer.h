// Turns Node's Persist effects into transactions on the disk worker. Effects that arrive while a transaction is under
// way are merged into the next one (group commit): a thousand submits cost a few flushes. Completions come in the
// order of the effects.
//
// A full disk is no failure: the transaction is tried again every kFullRetry until there is space, `disk.full` is
// logged once a minute, and whoever waits for the commit waits. Every other error is final: it and everything behind
// it fail, and the agent must end.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "agent/store/disk_reserve.h"
#include "agent/store/disk_worker.h"
#include "agent/store/store.h"
#include "common/base/log.h"
#include "common/base/time.h"
#include "common/node/effect.h"

namespace dtrain::store {

inline constexpr Duration kFullRetry = 1s;
inline constexpr Duration kFullLogEvery = 1min;
inline constexpr std::size_t kWaitingTickets = 1'000'000;  // reached only after hours with a full disk: commits then fail

// Appends `later` to `first`.
void merge(Transaction& first, Transaction&& later);

class Committer {
 public:
  using OnDone = std::function<void(std::uint64_t ticket, const Status& result)>;  // from the worker's dispatch()

  // `reserve`: space for a commit that finds none, used before it waits; the disk worker uses it while a commit runs. nullptr: none.
  Committer(Store& store, DiskWorker& worker, Log& log, OnDone on_done, DiskReserve* reserve = nullptr);

  // Cheap: nothing reaches the disk worker before flush().
  void add(node::Persist effect);
  // To be called at the end of each turn of the loop.
  void flush(Now now);
  Instant deadline() const { return retry_at_; }
  bool idle() const { return !in_flight_ && waiting_.tickets.empty(); }
  bool disk_full() const { return full_; }

 private:
  struct Batch {
    Transaction transaction;
    std::vector<std::uint64_t> tickets;
  };
  void finished(std::shared_ptr<Batch> batch, const Status& result);
  void note_full(const Error& error);
  Status commit(const Transaction& transaction);

  Store& store_;
  DiskWorker& worker_;
  Log& log_;
  OnDone on_done_;
  DiskReserve* reserve_;
  Batch waiting_;
  bool in_flight_ = false;
  bool full_ = false;
  std::optional<Error> failed_;
  Now now_;
  Instant retry_at_ = kNever;
  Instant next_full_line_{};
};

}  // namespace dtrain::store
