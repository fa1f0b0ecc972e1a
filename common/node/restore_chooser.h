// What the next generation of a job restores: asks hosts for their checkpoints, and one host to verify the chosen one.
// cluster::RestoreChoice decides which. Says to the caller only whether a generation may begin; a job that cannot
// restore gets the reason for its wait here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/cluster/restore.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/watched_jobs.h"

namespace dtrain::node {

class RestoreChooser {
 public:
  // `asks`: the part that the answers reach; it passes them on.
  RestoreChooser(Context& context, Part& asks, WatchedJobs& jobs, CheckpointRequests& checkpoints)
      : c_(context), part_(asks), jobs_(jobs), checkpoints_(checkpoints) {}

  void reset();
  void forget(JobId id);
  // To be called when the job changed: a choice for a generation that is not wanted any more is forgotten.
  void job_changed(const cluster::JobRecord& job);
  // To be called when hosts may have come back: these jobs look again for a checkpoint for which they wait.
  void look_again(const std::set<JobId>& ids);

  // under_way: an answer is awaited; blocked: there is nothing to restore now, and the job's reason says why.
  enum class State : unsigned char { ready, under_way, blocked };
  // `placements`: where its tasks would begin, if that is known. Hosts among them that ran it earlier are asked, too.
  State look(const cluster::JobRecord& job, WatchedJob& soft, const std::vector<cluster::TaskPlacement>& placements = {});
  // After `ready`: writes what is restored, and why, and forgets the choice.
  void take(const cluster::JobRecord& job, cluster::BeginGeneration& begin);
  // Before this instant, look() would find nothing new.
  Instant idle_until(const cluster::JobRecord& job) const;
  bool asks() const;  // some answer is awaited

  // Each returns true if the job may be able to go on.
  bool scanned(const CheckpointsScanned& e);
  bool verified(const CheckpointVerified& e);
  bool quarantined(const CheckpointQuarantined& e);

 private:
  struct Choosing {
    Choosing(cluster::RestoreChoice c, std::int64_t newest) : choice(std::move(c)), newest_known(newest) {}
    cluster::RestoreChoice choice;
    // step of the newest good checkpoint that the ledger knew at the beginning; -1: none
    std::int64_t newest_known;
    std::map<std::uint64_t, NodeId> asked;  // hosts that are scanning, by token
    std::set<NodeId> looked;                // hosts that were asked to scan
    std::vector<cluster::RestoreChoice::Found> found;
    std::optional<Error> problem;  // the first error of a scan
    bool everywhere = false;       // all hosts were asked
    std::set<NodeId> returning;    // hosts that ran it before its last generation, and are to run it again
    std::uint64_t token = 0;       // of the verification or quarantine that is awaited; 0: none
    NodeId host;                   // where that verification or quarantine happens
    Instant asked_at{};            // when the newest unanswered question was asked
    Instant retry = kNever;        // when to try again, after a failure or while a host is awaited
    std::uint32_t unreadable = 0;  // reads that failed for a reason other than damage
    bool under_way() const { return token != 0 || !asked.empty(); }
  };
  void withdraw(const Choosing& choosing);
  Choosing* find(JobId id);
  Choosing& choose(const cluster::JobRecord& job);
  void choose_later(const cluster::JobRecord& job, std::uint32_t unreadable, Duration pause, const std::string& why);
  void ask(const cluster::JobRecord& job, Choosing& choosing);
  State cannot_restore(const cluster::JobRecord& job, WatchedJob& soft, Choosing& choosing);
  void wait_for_newest(const cluster::JobRecord& job, WatchedJob& soft, Choosing& choosing);
  void report_what_takes_long(const cluster::JobRecord& job, WatchedJob& soft, const Choosing& choosing);
  std::set<NodeId> copies_in_service() const;
  std::set<NodeId> returning(const cluster::JobRecord& job, const std::vector<cluster::TaskPlacement>& placements) const;
  std::set<NodeId> hosts_to_ask(const cluster::JobRecord& job, const Choosing& choosing) const;
  void ask_hosts(const cluster::JobRecord& job, Choosing& choosing);
  static void look_everywhere(Choosing& choosing);
  void all_looked(const cluster::JobRecord& job, Choosing& choosing);
  std::set<NodeId> hosts_away(const cluster::JobRecord& job, const Choosing& choosing) const;
  std::string hosts_text(const std::vector<NodeId>& hosts) const;

  Context& c_;
  Part& part_;
  WatchedJobs& jobs_;
  CheckpointRequests& checkpoints_;
  std::map<JobId, Choosing> choices_;
};

}  // namespace dtrain::node
