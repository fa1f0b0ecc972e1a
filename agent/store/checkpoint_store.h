// Performs Node's checkpoint effects: watch, scan, verify, quarantine, delete. Everything that touches a disk runs on
// the agent's one disk worker, with the rights of the job's user, in pieces short enough to let other work pass.
//
// The loop thread calls everything here. Events go to the sink, only from dispatch(). fd() becomes readable when
// dispatch() has something to read; deadline() is when it must be called at the latest: to be asked again after every
// effect and after every `done` callback. May be destroyed while work is under way.
//
// An unasked CheckpointsScanned (token 0) is sent for a watched directory when something changed there and every
// checkpoint looked the same (files, sizes, times) twice in a row; a checkpoint that keeps changing is listed as
// incomplete after some patience. The first one comes soon after the watch began, if there is anything.
//
// Verification: token 0 is a background check, kept to `bytes_per_second`; any other token means that somebody waits:
// as fast as the disk allows, and before the background ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "agent/store/checkpoint_temporary.h"
#include "common/base/log.h"
#include "common/base/time.h"
#include "common/node/effect.h"
#include "common/node/event.h"

namespace dtrain::store {

inline constexpr std::size_t kPendingVerifications = 1024;  // unanswered; further ones are answered with Error{limit}

struct CheckpointStoreOptions {
  std::uint64_t bytes_per_second = 200ull << 20;  // storage.checkpointRate; 0: no limit
  Duration quiet = 50ms;                          // a burst of changes is over after so long without a change
  Duration longest_burst = 1s;                    // but the directory is scanned after this time in any case
  Duration settle = 150ms;                        // between two scans that must agree; doubles while they do not and no change is reported
  Duration longest_settle = 5s;
  Duration poll = 5s;            // where changes are not reported, and after an error
  Duration foreign_after = 30s;  // for files in no known format without a checkpoint: then they are reported
  CopyOwner copies = {};         // the first scan of a watch removes copies that earlier lives did not finish
};

class CheckpointStore {
 public:
  // Runs `work` on the disk worker, then `done` on the loop thread.
  using Post = std::function<void(std::function<void()> work, std::function<void()> done)>;
  using EventSink = std::function<void(node::Event)>;

  CheckpointStore(Post post, Log& log, CheckpointStoreOptions options = {});
  ~CheckpointStore();

  void watch(const node::WatchCheckpoints& effect);   // off also ends the job's background verifications
  void scan(const node::ScanCheckpoints& effect);     // -> CheckpointsScanned
  void verify(const node::VerifyCheckpoint& effect);  // -> CheckpointVerified
  void end(const node::EndVerification& effect);
  void quarantine(const node::QuarantineCheckpoint& effect);  // -> CheckpointQuarantined
  void remove(const node::DeleteCheckpoint& effect);          // a failure is logged

  int fd() const;  // -1: nothing to poll
  Instant deadline() const;
  void dispatch(Instant now, const EventSink& sink);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // callbacks of unfinished work hold it weakly
};

}  // namespace dtrain::store
