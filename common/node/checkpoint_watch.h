// The checkpoint directories of jobs with tasks on this host: what appears there is told to the ledger, verified by one of the hosts
// that see it, and, with checkpoint.keep, what is surplus is deleted here.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/node/proposals.h"

namespace dtrain::node {

inline constexpr std::size_t kSeenAtOnce = 16;    // told and not applied yet; further ones wait
inline constexpr std::size_t kSeenWaiting = 4096; // a further one is told when its directory changes again

class CheckpointWatch {
 public:
  CheckpointWatch(Context& context, Proposals& proposals) : c_(context), proposals_(proposals) {}

  void follow(JobId id);  // the ledger's record of it changed
  // True: ours.
  bool scanned(const CheckpointsScanned& e);
  bool verified(const CheckpointVerified& e);
  // A copy is of no use.
  void damaged(JobId id, transfer::CheckpointInfo info, const Error& cause);
  // A copy was put there.
  void placed(JobId id, transfer::CheckpointInfo info);
  // A command is in the ledger, or was given up.
  void applied(const MemberId& command);
  void given_up(const MemberId& command);

 private:
  struct Job {
    Generation generation = 0;
    std::uint64_t token = 0;  // of the look before its tasks begin
    bool beside = false;      // tasks of the generation had begun elsewhere by then
    std::optional<std::vector<transfer::CheckpointInfo>> meanwhile;  // came while that look was under way
    std::set<std::string> known;     // told, or judged
    std::set<std::string> verified;  // or tried to
    std::set<std::string> deleted;
    std::set<std::string> listed;   // paths that the newest look found
    std::set<std::string> removed;  // by the job itself, as this watch saw
    std::vector<transfer::CheckpointInfo> to_verify;
    std::optional<transfer::CheckpointInfo> verifying;  // one at a time, newest first
  };

  void look_before(const cluster::JobRecord& job, Job& soft);
  void found(const cluster::JobRecord& job, Job& soft, const std::vector<transfer::CheckpointInfo>& list, Generation generation);
  void note_removed(const cluster::JobRecord& job, Job& soft, const std::vector<transfer::CheckpointInfo>& list);
  Generation written_before(const cluster::JobRecord& job, const Job& soft, const std::vector<transfer::CheckpointInfo>& list) const;
  transfer::CheckpointInfo as_here(const cluster::CheckpointRecord& r) const;
  bool counts(const cluster::JobRecord& job, const cluster::CheckpointRecord& r) const;
  void find_work(const cluster::JobRecord& job, Job& soft);
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
