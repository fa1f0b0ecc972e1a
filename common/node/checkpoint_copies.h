// Brings the checkpoint that a generation restores to every host that has tasks of the generation. Where the
// checkpoint is missing or does not verify, its files are fetched from a host that has them and are put under the
// same path before the tasks are staged. The bytes travel over relayed streams to the disk (WriteCheckpoint), which
// accepts the checkpoint only if all of it verifies. What was written is kept when a stream ends: the next source
// continues from there.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/node/checkpoint_watch.h"
#include "common/node/relays.h"
#include "common/node/staging.h"

namespace dtrain::node {

inline constexpr std::size_t kCopiesAtOnce = 2;  // further copies wait
inline constexpr Duration kCopyAgain = 1s;       // pause after all sources failed
// rounds that may fail; then the task's staging fails, and the job chooses a checkpoint anew
inline constexpr std::uint32_t kCopyRounds = 3;
// an open stream that delivers nothing for so long is given up for the next source
inline constexpr Duration kCopyStalls = 120s;
// a scan of this host's disk that takes longer counts as hanging: staging fails
inline constexpr Duration kOwnLookWithin = 30s;
inline constexpr std::size_t kCopiedFiles = 10'000;  // files of one checkpoint: a host refuses to send more

class CheckpointCopies final : public StagingStep {
 public:
  CheckpointCopies(Context& context, Staging& staging, Relays& relays, CheckpointWatch& watch)
      : StagingStep(context, staging, "checkpoint"), relays_(relays), watch_(watch) {}

  // Copies what that host has of a checkpoint beside what this host has of it, for the choice of a restore. The answer is
  // CheckpointVerified. Of a job one at a time: a further one takes the place of that before, whose asker is gone.
  void fetch(const NodeId& from, VerifyCheckpoint share);
  bool end_fetch(JobId job, std::uint64_t token);  // false: there is no such

  void begin(const StagedTask& task) override;  // passes once the checkpoint is here
  void give_up(const AssignmentId& id) override;
  void scanned(const CheckpointsScanned& e) override;
  void verified(const CheckpointVerified& e) override;
  void relay_answered(const RelayAnswered& e) override;
  void relay_ended(const RelayEnded& e) override;
  void members_changed() override;
  void drive() override;
  Instant deadline() const override;

  void checkpoint_written(const CheckpointWritten& e) override;

  // Answers another agent that asks for the files of a checkpoint.
  void send(const Request& e, const wire::GetCheckpointRequest& q);

 private:
  struct Copy {
    std::set<AssignmentId> waiting;
    std::uint64_t answer = 0;  // the token of fetch(), for which this is; 0: it is for the tasks that wait
    NodeId from;               // of fetch()
    transfer::CheckpointInfo info;
    std::uint64_t token = 0;                      // of the scan or verification of this host's disk that is under way; 0: none
    Instant asked_at{};                           // when that scan or verification was asked for
    std::optional<transfer::CheckpointInfo> own;  // the checkpoint as found on this host, while it is being verified
    bool looked = false;                          // this host's disk was scanned, and the checkpoint is not there
    std::vector<wire::CheckpointFiles::File> files;
    OwnConnection writer;        // none: nothing of the checkpoint was written
    std::uint64_t have = 0;      // bytes given to the disk
    bool complete = false;       // the last byte was given to the disk
    ConnectionId part = 0;       // the open stream; 0: none
    NodeId source;               // the host that the stream comes from
    Instant came{};              // when the stream last delivered something
    std::deque<NodeId> sources;  // hosts that are yet to be asked in this round
    bool in_round = false;
    bool all_lack = true;      // every host that was asked in this round lacks the checkpoint
    std::string problem;       // the first problem of this round
    std::uint32_t rounds = 0;  // failed rounds
    Instant retry{};           // when the next round begins
    bool busy() const { return part != 0 || complete || token != 0; }
  };
  using Copies = std::map<std::pair<JobId, Generation>, Copy>;  // generation 0: of fetch()
  bool needed(const cluster::JobRecord* job, const AssignmentId& id) const;
  void look(Copies::iterator it);
  void lacks(Copies::iterator it);
  void own_is_damaged(Copies::iterator it, const transfer::CheckpointInfo& own, const Error& cause);
  std::deque<NodeId> sources_of(JobId job, const Copy& copy) const;
  void next_source(Copies::iterator it);
  void round_failed(Copies::iterator it);
  void start_over(Copy& copy);
  void release(Copies::iterator it);
  void fail_all(Copies::iterator it, const Error& error);
  void settle(Copies::iterator it, const Status& result);
  Copies::iterator of_writer(ConnectionId writer);
  Copies::iterator of_token(std::uint64_t token);

  Relays& relays_;
  CheckpointWatch& watch_;
  Copies copies_;
};

}  // namespace dtrain::node
