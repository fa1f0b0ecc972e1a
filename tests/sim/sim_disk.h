// The agent's storage in the simulated world: commits are atomic, in order, and take time. A crash leaves a prefix of
// what was asked for: every completed commit, and any number of those in flight.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/node/effect.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

class SimDisk {
 public:
  struct Stored {
    raft::Stored replica;
    std::map<std::string, std::string> task_records;
    std::string formation;
  };
  using Post = std::function<void(node::Event)>;
  // Called for a commit that breaks the rules of storage (a gap in the log), with a description.
  using Complain = std::function<void(std::string)>;

  SimDisk(Timeline& timeline, Rng rng, Post post, Complain complain);

  void perform(const node::Persist& persist);  // -> Persisted | PersistFailed
  void agent_died();                           // completions are dropped; the stored state is as described above
  const Stored& stored() const { return stored_; }
  bool idle() const { return pending_.empty(); }  // stored() is all that was asked for
  std::uint64_t commits() const { return commits_; }

  // Faults.
  void fail_next() { fail_next_ = true; }
  void set_full(bool full) { full_ = full; }
  void lose() { stored_ = {}; }                               // while no agent runs
  void set_slowest(Duration slowest) { slowest_ = slowest; }  // a commit takes up to this long
  // Breaks the promise of Persisted: the newest commit is reported durable, and is lost in a crash.
  void set_forgetful() { forgetful_ = true; }

  static constexpr Duration kUsualCommit = 4ms;

 private:
  void commit();  // the oldest pending one is due
  void apply(const node::Persist& persist);

  Timeline& timeline_;
  Rng rng_;
  Post post_;
  Complain complain_;
  Stored stored_;
  std::deque<node::Persist> pending_;
  std::uint64_t life_ = 0, commits_ = 0;
  Instant busy_until_{};
  Duration slowest_ = kUsualCommit;
  bool fail_next_ = false, full_ = false, forgetful_ = false;
  std::optional<node::Persist> unsynced_;  // forgetful only
  bool broken_ = false;                    // after a failure nothing is written until the agent starts again
};

}  // namespace dtrain::sim
