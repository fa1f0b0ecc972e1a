// The checkpoint that a generation restores, on every host with tasks of it: where it is not, or does not verify, the files are
// fetched from a host that has them, and put under the same path, before the tasks are staged. The bytes go over relayed streams and
// to the disk (WriteCheckpoint), which accepts them only if all of it verifies. What was written is kept when a stream ends: the next
// source goes on behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/node/checkpoint_watch.h"
#include "common/node/context.h"
#include "common/node/packages.h"
#include "common/node/relays.h"

namespace dtrain::node {

inline constexpr std::size_t kCopiesAtOnce = 2;        // further ones wait
inline constexpr Duration kCopyAgain = 1s;             // after all sources failed
inline constexpr std::uint32_t kCopyRounds = 3;        // then the task's staging fails, and the job looks for a checkpoint anew
inline constexpr Duration kCopyStalls = 120s;          // nothing came of an open stream for so long: the next source
inline constexpr Duration kOwnLookWithin = 30s;        // this host's disk hangs: staging fails
inline constexpr std::size_t kCopiedFiles = 10'000;    // of one checkpoint: more are refused by who has them

class CheckpointCopies {
 public:
  CheckpointCopies(Context& context, Relays& relays, Packages& packages, CheckpointWatch& watch)
      : c_(context), relays_(relays), packages_(packages), watch_(watch) {}

  void stage(Stage stage);  // goes on to the packages once the checkpoint is here
  std::vector<AssignmentId> waiting(JobId job) const;
  void give_up(const AssignmentId& id);
  std::vector<Staged> take_staged() { return std::exchange(staged_, {}); }
  std::vector<std::pair<AssignmentId, std::string>> take_reasons() { return std::exchange(reasons_, {}); }

  bool scanned(const CheckpointsScanned& e);   // true: ours
  bool verified(const CheckpointVerified& e);  // true: ours
  void answered(const RelayAnswered& e);
  void ended(const RelayEnded& e);
  void written(const CheckpointWritten& e);
  void members_changed();
  void drive();
  Instant deadline() const;

  // Another agent asks for the files of one.
  void send(const Request& e, const wire::GetCheckpointRequest& q);

 private:
  struct Copy {
    std::map<AssignmentId, Stage> stages;
    transfer::CheckpointInfo info;
    std::uint64_t token = 0;     // what lies here is looked for, or verified
    Instant asked_at{};          // then
    std::optional<transfer::CheckpointInfo> own;  // it lies here, and is being verified
    bool looked = false;         // it is not here
    std::vector<wire::CheckpointFiles::File> files;
    ConnectionId writer = 0;     // 0: nothing of it was written
    std::uint64_t have = 0;      // bytes given to the disk
    bool complete = false;       // with the last of them
    ConnectionId part = 0;       // the stream; 0: none
    NodeId source;               // of it
    Instant came{};              // when something of it last came
    std::deque<NodeId> sources;  // to be asked yet in this round
    bool in_round = false;
    bool all_lack = true;        // everybody who was asked in this round says so
    std::string problem;         // the first of this round
    std::uint32_t rounds = 0;    // that failed
    Instant retry{};             // the next begins then
    bool busy() const { return part != 0 || complete || token != 0; }
  };
  using Copies = std::map<std::pair<JobId, Generation>, Copy>;
  bool needed(const cluster::JobRecord* job, const Stage& stage) const;
  void look(Copies::iterator it);
  void lacks(Copies::iterator it);
  void own_is_damaged(Copies::iterator it, const transfer::CheckpointInfo& own, const Error& cause);
  std::deque<NodeId> sources_of(JobId job, const Copy& copy) const;
  void next_source(Copies::iterator it);
  void round_failed(Copies::iterator it);
  void start_over(Copy& copy);
  void release(Copies::iterator it);
  void fail_all(Copies::iterator it, const Error& error);
  Copies::iterator of_writer(ConnectionId writer);
  Copies::iterator of_token(std::uint64_t token);

  Context& c_;
  Relays& relays_;
  Packages& packages_;
  CheckpointWatch& watch_;
  Copies copies_;
  std::vector<Staged> staged_;
  std::vector<std::pair<AssignmentId, std::string>> reasons_;
};

}  // namespace dtrain::node
