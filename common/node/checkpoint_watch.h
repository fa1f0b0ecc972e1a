// Watches the checkpoint directories of jobs with tasks on this host. It reports new checkpoints to the ledger, has
// one of the hosts that see a checkpoint verify it, and deletes surplus ones here if checkpoint.keep is set.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/node/part.h"
#include "common/node/proposals.h"

namespace dtrain::node {

inline constexpr std::size_t kSeenAtOnce = 16;     // reports that were proposed and are not applied yet; further ones wait
inline constexpr std::size_t kSeenWaiting = 4096;  // a further checkpoint is reported when its directory changes again

class CheckpointWatch final : public Part {
 public:
  CheckpointWatch(Context& context, Proposals& proposals) : Part(Runs::with_disk), c_(context), proposals_(proposals) {}

  void job_changed(JobId id);                          // to be called when the ledger's record of the job changed
  void scanned(const CheckpointsScanned& e) override;  // also those that nobody asked for
  void verified(const CheckpointVerified& e) override;
  // To be called when a copy of a checkpoint proved useless.
  void damaged(JobId id, transfer::CheckpointInfo info, const Error& cause);
  // To be called when a copy of a checkpoint was written to this host.
  void placed(JobId id, transfer::CheckpointInfo info);
  // To be called when a command is applied to the ledger, or was given up.
  void applied(const MemberId& command);
  void given_up(const MemberId& command);

 private:
  struct Job {
    Generation generation = 0;
    std::uint64_t token = 0;  // of the scan before this host's tasks begin; 0: none
    bool beside = false;      // tasks of the generation had begun on other hosts before that scan ended
    // what changed in the directory while that scan was under way
    std::optional<std::vector<transfer::CheckpointInfo>> meanwhile;
    std::set<std::string> known;     // paths that were reported, or that were judged not worth a report
    std::set<std::string> verified;  // paths that were verified, or whose verification was tried
    std::set<std::string> deleted;
    std::set<std::string> listed;  // paths that the newest scan found
    std::map<std::string, transfer::CheckpointInfo>
        shares;                     // by path, of what that scan found: what this host has of checkpoints of several hosts
    std::set<std::string> removed;  // paths that the job itself removed, as this watch saw
    std::vector<transfer::CheckpointInfo> to_verify;
    std::optional<transfer::CheckpointInfo> verifying;  // one at a time, newest first
  };

  void look_before(const cluster::JobRecord& job, Job& soft);
  void found(const cluster::JobRecord& job, Job& soft, const std::vector<transfer::CheckpointInfo>& list, Generation generation);
  void note_removed(const cluster::JobRecord& job, Job& soft, const std::vector<transfer::CheckpointInfo>& list);
  Generation written_before(const cluster::JobRecord& job, const Job& soft, const std::vector<transfer::CheckpointInfo>& list) const;
  transfer::CheckpointInfo as_here(const cluster::CheckpointRecord& r) const;
  const transfer::CheckpointInfo* share_here(const cluster::CheckpointRecord& r, const Job& soft) const;
  void find_work(const cluster::JobRecord& job, Job& soft);
  void verify_share(const cluster::CheckpointRecord& r, Job& soft);
  void verify_next(const cluster::JobRecord& job, Job& soft);
  void delete_surplus(const cluster::JobRecord& job, Job& soft);
  void say(cluster::CheckpointSeen seen);
  void pump();

  Context& c_;
  Proposals& proposals_;
  std::map<JobId, Job> jobs_;
  std::deque<cluster::CheckpointSeen> to_say_;
  std::map<MemberId, cluster::CheckpointSeen> said_;
};

}  // namespace dtrain::node
