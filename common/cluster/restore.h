// Decides which checkpoint a new generation restores: a small state machine that is given what hosts found, and the
// results of verifications. Pure. Rules: docs/recovery.md, "What a restore takes". Tried are the checkpoints that no
// later generation left behind, the newest step first. One whose ranks wrote to their own hosts' disks is put together on one host first,
// file by file of each host's share; then the hosts are scanned again.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/cluster/state.h"

namespace dtrain::cluster {

class RestoreChoice {
 public:
  // What one host found in the directory, newest step first.
  struct Found {
    NodeId host;
    std::vector<transfer::CheckpointInfo> list;
  };
  // What one host has of a checkpoint.
  struct Share {
    NodeId host;
    transfer::CheckpointInfo info;
  };
  // One set of files on disk: a copy elsewhere is another candidate. Hosts that see the same directory share one.
  struct Candidate {
    transfer::CheckpointInfo info;
    std::vector<NodeId> hosts;
    Generation generation = 0;  // that wrote it
    // Not empty: no host has all of it, and these have together. It is put together on the first one's host, which is `hosts`.
    std::vector<Share> shares = {};
  };
  // A checkpoint that the ledger knows, newer than all available ones, on hosts that are away.
  struct Away {
    std::int64_t step = 0;
    std::vector<NodeId> hosts;
    bool part = false;  // they have shares of it
  };
  struct Step {
    // fetch: the share `at` is copied to host `to`, where verified() says that it is good and in place.
    enum class Kind : unsigned char { scan, scan_parent, verify, fetch, quarantine, chosen, nothing, wait, blocked } kind;
    Candidate at;                // verify, quarantine, chosen
    std::string reason;          // quarantine: what is wrong; chosen, nothing, blocked: the reason for the history
    bool damaged = false;        // quarantine: it does not verify; false: it is of a stale branch
    std::optional<Away> newest;  // wait: what is waited for; chosen, nothing: what is given up after a long enough wait
    std::int64_t older = -1;     // wait: the step to restore after the wait; -1: none
    NodeId to = {};              // fetch
  };

  struct Rules {
    bool trust_unverified = false;  // broken by tests
    bool trust_any_branch = false;
  };
  // `job`: as at the beginning of the choice; later changes do not matter.
  RestoreChoice(const JobRecord& job, Rules rules);

  // The next step, unchanged until one of the calls below.
  const Step& step() const { return step_; }
  bool from_scratch() const { return from_scratch_; }
  bool pinned() const;  // restore: PATH is set, and the job has no checkpoint of its own yet

  // True if these lack the newest checkpoint that the ledger knows, so that other hosts must be asked, too.
  bool lacks_newest(const std::vector<Found>& found) const;
  // `away`: hosts that gave no answer and may come back. `waited`: timing.restoreWait is over.
  void scanned(const std::vector<Found>& found, const std::set<NodeId>& away, bool waited);
  void verified(const Status& result);  // also of a fetch; one that is not damaged but cannot be read is passed over and stays
  void quarantined();                   // done, or tried

 private:
  const CheckpointRecord* newest_known(std::int64_t above) const;
  std::optional<Away> awaited(std::int64_t above) const;
  void note_lacking(Share share, Generation generation);
  void add_together(const std::vector<Found>& found, std::vector<Candidate>& all, bool all_asked);
  void decide(Step decision);
  void next_share();
  void share_verified(const Status& result);
  void scan_again();
  void next_candidate();
  void nothing_left();
  void drop_known(const transfer::CheckpointInfo& info);

  job::CheckpointSpec spec_;
  JobRecord job_;  // its checkpoints, lineage and what ran where
  bool from_scratch_;
  Rules rules_;
  bool skip_newest_;                 // after two failures in a row without progress
  std::int64_t skip_from_step_ = 0;  // if skip_newest_: the step that is passed over
  bool parent_scanned_ = false, waited_ = false;
  std::set<NodeId> away_;
  std::vector<Candidate> candidates_, skipped_;
  std::size_t next_ = 0;
  std::string unreadable_;          // the newest that was passed over as unreadable, and why
  std::vector<Candidate> stale_;    // candidates to quarantine once the choice is made
  std::vector<Candidate> lacking_;  // shares of what is not whole anywhere
  std::size_t next_share_ = 0;
  std::set<std::pair<NodeId, std::string>> bad_shares_;  // host, digest and path
  std::set<std::string> put_together_;                   // paths
  std::optional<Step> decision_;
  Step step_{Step::Kind::scan, {}, "", false, {}, -1, {}};
};

// Failures in a row of generations restored from the same checkpoint, after which the next older one is
// taken.
inline constexpr std::uint32_t kFruitlessRestores = 2;

}  // namespace dtrain::cluster
