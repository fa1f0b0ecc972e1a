// Which checkpoint a new generation restores: a small machine fed with what hosts found and with verdicts. Pure. Rules:
// docs/recovery.md, "What a restore takes". The order is newest step first, of what no later generation left behind.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/cluster/state.h"

namespace dtrain::cluster {

class RestoreChoice {
 public:
  // What one host has in the directory, newest step first.
  struct Found {
    NodeId host;
    std::vector<transfer::CheckpointInfo> list;
  };
  // Of files on disk: a copy elsewhere is another one. Hosts that see one directory share it.
  struct Candidate {
    transfer::CheckpointInfo info;
    std::vector<NodeId> hosts;
    Generation generation = 0;  // that wrote it
  };
  // One that the ledger knows, newer than what can be had, on hosts that are away.
  struct Away {
    std::int64_t step = 0;
    std::vector<NodeId> hosts;
  };
  struct Step {
    enum class Kind : unsigned char { scan, scan_parent, verify, quarantine, chosen, nothing, wait, blocked } kind;
    Candidate at;                // verify, quarantine, chosen
    std::string reason;          // quarantine: what is wrong; chosen, nothing, blocked: for the history
    bool damaged = false;        // quarantine: it does not verify (else: a stale branch)
    std::optional<Away> newest;  // wait: for what; chosen, nothing, where it was waited for long enough: what is given up
    std::int64_t older = -1;     // wait: the step to go on from after that; -1: none
  };

  struct Rules {
    bool trust_unverified = false;  // to be broken: by tests
    bool trust_any_branch = false;
  };
  // `job` as it is when the search begins; only these facts of it matter.
  RestoreChoice(const JobRecord& job, Rules rules);

  // What to do next; the same until one of the answers below arrives.
  const Step& step() const { return step_; }
  bool from_scratch() const { return from_scratch_; }
  bool pinned() const;  // restore: PATH, and nothing of our own yet

  // Do these lack the newest that the ledger knows, so that other hosts are to be asked, too?
  bool lacks_newest(const std::vector<Found>& found) const;
  // `away`: hosts that gave no answer and may come back. `waited`: for as long as timing.restoreWait says.
  void scanned(const std::vector<Found>& found, const std::set<NodeId>& away, bool waited);
  void verified(const Status& result);  // what is not damaged but cannot be read is passed over, and stays
  void quarantined();  // or tried to

 private:
  const CheckpointRecord* newest_known(std::int64_t above) const;
  std::optional<Away> awaited(std::int64_t above) const;
  void next_candidate();
  void nothing_left();
  void drop_known(const transfer::CheckpointInfo& info);

  job::CheckpointSpec spec_;
  JobRecord job_;  // its checkpoints, lineage and what ran where
  bool from_scratch_;
  Rules rules_;
  bool skip_newest_;                 // two failures in a row without progress
  std::int64_t skip_from_step_ = 0;  // then: this step is passed over
  bool parent_scanned_ = false, waited_ = false;
  std::set<NodeId> away_;
  std::vector<Candidate> candidates_, skipped_;
  std::size_t next_ = 0;
  std::string unreadable_;  // the newest that was passed over, and why
  std::vector<Candidate> stale_;  // to quarantine once the choice is made
  std::optional<Step> decision_;
  Step step_{Step::Kind::scan, {}, "", false, {}, -1};
};

// Failures in a row of generations restored from the same checkpoint, after which the next older one is
// taken.
inline constexpr std::uint32_t kFruitlessRestores = 2;

}  // namespace dtrain::cluster
