// Which checkpoint a new generation restores: a small machine fed with scans and verdicts. Pure. Rules:
// docs/recovery.md, "What a restore takes". The order is newest step first: what a stale branch wrote beyond
// a restore point is quarantined when its successor begins, so steps on disk follow the lineage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/state.h"

namespace dtrain::cluster {

class RestoreChoice {
 public:
  struct Step {
    enum class Kind : unsigned char { scan, scan_parent, verify, quarantine, chosen, nothing, blocked } kind;
    transfer::CheckpointInfo info;  // verify, quarantine, chosen
    std::string reason;             // quarantine: what is wrong; chosen, nothing, blocked: for the history
    bool damaged = false;           // quarantine: it does not verify (else: a stale branch)
  };

  // `job` as it is when the search begins; only these facts of it matter.
  RestoreChoice(const JobRecord& job, bool trust_unverified);

  // What to do next; the same until one of the answers below arrives.
  const Step& step() const { return step_; }
  bool from_scratch() const { return from_scratch_; }
  bool pinned() const;  // restore: PATH, and nothing of our own yet

  void scanned(std::vector<transfer::CheckpointInfo> found);  // newest step first
  void verified(const Status& result);
  void quarantined();  // or tried to

 private:
  void next_candidate();
  void nothing_left();

  job::CheckpointSpec spec_;
  bool committed_once_, from_scratch_, trust_unverified_;
  bool first_;                       // no generation ran yet
  bool skip_newest_;                 // two failures in a row without progress
  std::int64_t skip_from_step_ = 0;  // then: this step is passed over
  bool parent_scanned_ = false;
  std::vector<transfer::CheckpointInfo> candidates_;
  std::size_t next_ = 0;
  std::vector<transfer::CheckpointInfo> stale_;  // to quarantine once the choice is made
  std::optional<Step> decision_;
  Step step_{Step::Kind::scan, {}, "", false};
};

// Failures in a row of generations restored from the same checkpoint, after which the next older one is
// taken.
inline constexpr std::uint32_t kFruitlessRestores = 2;

}  // namespace dtrain::cluster
