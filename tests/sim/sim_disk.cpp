#include "tests/sim/sim_disk.h"

#include <algorithm>

#include "common/raft/raft.h"
#include "common/wire/codec.h"

namespace dtrain::sim {
namespace {

constexpr std::uint64_t kCommitsCoded = 7;  // every such commit goes through the codec, as it would on a real disk

}  // namespace

SimDisk::SimDisk(Timeline& timeline, Rng rng, Post post, Complain complain)
    : timeline_(timeline), rng_(rng), post_(std::move(post)), complain_(std::move(complain)) {}

void SimDisk::perform(const node::Persist& persist) {
  pending_.push_back(persist);
  const auto range = static_cast<std::uint64_t>(slowest_.count());
  busy_until_ = std::max(busy_until_, timeline_.now()) + Duration(static_cast<std::int64_t>(rng_.below(range) + 1));
  timeline_.at(busy_until_, [this, life = life_] {
    if (life == life_) commit();
  });
}

void SimDisk::commit() {
  const node::Persist persist = std::move(pending_.front());
  pending_.pop_front();
  if (full_ || fail_next_ || broken_) {
    // A failed commit may have reached the disk all the same: only the next start tells.
    if (fail_next_ && !full_ && !broken_ && rng_.chance(1, 4)) apply(persist);
    fail_next_ = false;
    broken_ = true;
    post_(node::PersistFailed{
        persist.ticket,
        Error{ErrorCode::io, full_ ? "could not write ledger: no space left on device" : "could not write ledger: input/output error",
              "check the disk of paths.data"}});
    return;
  }
  if (forgetful_) {
    if (unsynced_) apply(*unsynced_);
    unsynced_ = persist;
  } else {
    apply(persist);
  }
  ++commits_;
  post_(node::Persisted{persist.ticket});
}

void SimDisk::agent_died() {
  ++life_;
  // Commits run in order, so what a crash leaves of them is a prefix.
  if (!broken_ && !full_ && !unsynced_) {
    const std::uint64_t reached = rng_.below(pending_.size() + 1);
    for (std::uint64_t i = 0; i < reached; ++i) apply(pending_[i]);
  }
  pending_.clear();
  unsynced_.reset();
  busy_until_ = timeline_.now();
  broken_ = false;
  fail_next_ = false;
}

void SimDisk::apply(const node::Persist& persist) {
  raft::Stored& replica = stored_.replica;
  if (persist.forget_log) replica = {};
  if (persist.formation) stored_.formation = *persist.formation;
  std::uint64_t last = !replica.log.empty() ? replica.log.back().index : replica.snapshot ? replica.snapshot->index : 0;
  if (persist.reset_log) last = persist.snapshot->index;
  if (persist.truncate_from) last = std::min(last, *persist.truncate_from - 1);
  // What others made durable may be applied, and in a snapshot, before it was written here.
  if (persist.snapshot) last = std::max(last, persist.snapshot->index);
  for (const auto& entry : persist.append) {
    if (entry.index != ++last)
      complain_("entry " + std::to_string(entry.index) + " was appended where entry " + std::to_string(last) + " belongs");
    if (entry.index % kCommitsCoded == 0) {
      auto coded = wire::decode<raft::LogEntry>(wire::encode(entry));
      if (!coded || coded->payload != entry.payload) complain_("entry " + std::to_string(entry.index) + " does not survive its encoding");
    }
  }
  raft::store(replica, {0, false, persist.hard, persist.snapshot, persist.reset_log, persist.truncate_from, persist.append, {}});
  for (const auto& key : persist.erase_task_records) stored_.task_records.erase(key);
  for (const auto& [key, bytes] : persist.put_task_records) stored_.task_records[key] = bytes;
}

}  // namespace dtrain::sim
