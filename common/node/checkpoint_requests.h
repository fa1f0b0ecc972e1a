// Questions about checkpoints between hosts: those that the coordinator asks, and those that other agents ask this host.
//
// A question to this host is the effect itself; one to another host goes over a relayed stream and is answered by the
// same event, so that the caller sees no difference but the time. A question that gets no answer is answered with
// Error{unavailable}.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/node/context.h"
#include "common/node/part.h"
#include "common/node/relays.h"

namespace dtrain::node {

class CheckpointCopies;

inline constexpr std::size_t kQuestionsAtOnce = 48;     // questions of this host to all others; further ones wait
inline constexpr std::size_t kQuestionsOfHost = 8;      // of kQuestionsAtOnce, those to one host, whose disk may hang
inline constexpr std::size_t kQuestionsWaiting = 4096;  // a further question is answered with Error{limit}
// a disk may hang, this host's too: the scan then counts as having found nothing
inline constexpr Duration kScanWithin = 30s;
// then the verification is asked for anew: enough for some 4 TB at 1 GB/s
inline constexpr Duration kVerifyWithin = 1h;
inline constexpr Duration kQuarantineWithin = 60s;     // then the checkpoint is passed over
inline constexpr std::size_t kFoundBytes = 256 << 10;  // of a scan's answer: the newest checkpoints that fit are sent
// questions of other agents that are being answered here; a further one is refused
inline constexpr std::size_t kQuestionsOfOthers = 256;

// Below which directory no symbolic link is followed on the way to the checkpoint at `path`, when a host reads it: checkpoint.dir, which
// others of a team may write to. The path that the job file itself names (restore) may be a link, or lead through some.
std::string read_below(const cluster::JobRecord& job, const std::string& path);
VerifyCheckpoint verification(const cluster::JobRecord& job, std::uint64_t token, transfer::CheckpointInfo info);

class CheckpointRequests final : public Part {
 public:
  CheckpointRequests(Context& context, Relays& relays) : Part(Runs::with_disk), c_(context), relays_(relays) {}

  // ---- questions of this host; the answers are the effects' events, with the tokens given. Job, spec and user come
  // from the ledger.
  void scan(const NodeId& host, ScanCheckpoints effect);
  void verify(const NodeId& host, VerifyCheckpoint effect);
  void quarantine(const NodeId& host, QuarantineCheckpoint effect);
  // Has `host` copy another host's share of a checkpoint to its own disk and verify it: CheckpointVerified.
  void fetch(const NodeId& host, const NodeId& from, VerifyCheckpoint share);
  // Nobody here waits for that verification or copy any more: it is answered with Error{unavailable}, and its host stops to read.
  void withdraw(std::uint64_t token);
  void use(CheckpointCopies& copies) { copies_ = &copies; }  // which carries that out here
  // To be called when this host's disk has answered, whoever asked.
  void came(std::uint64_t token) { own_.erase(token); }

  // ---- questions of other agents
  void asked(const Request& e, const wire::CheckpointQuestion& q);
  void scanned(const CheckpointsScanned& e) override;
  void verified(const CheckpointVerified& e) override;
  void quarantined(const CheckpointQuarantined& e) override;
  void closed(ConnectionId connection) override;

  // ---- both
  void relay_answered(const RelayAnswered& e) override;
  void relay_ended(const RelayEnded& e) override;
  void members_changed() override;
  void drive() override;
  Instant deadline() const override;

 private:
  struct Question {
    NodeId host;
    JobId job = 0;
    std::uint64_t token = 0;
    std::string path;
    wire::CheckpointQuestion body;
    ConnectionId part = 0;
    Instant until = kNever;
    std::string answer;             // an encoded wire::CheckpointAnswer
    OwnConnection connection = {};  // to another host
  };
  struct Asker {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    JobId reads = 0;  // the job whose checkpoint is read for it; 0: this is no verification and no copy
  };
  bool is_open_to(const NodeId& host) const;  // the host has fewer open questions than kQuestionsOfHost
  void ask(Question question);
  void open(Question question);
  void settle(const Question& q, const Status& result);
  Asker take(std::uint64_t token);
  void end_reading(JobId job, std::uint64_t token);

  Context& c_;
  Relays& relays_;
  CheckpointCopies* copies_ = nullptr;
  std::map<ConnectionId, Question> open_;  // by their connections
  std::deque<Question> waiting_;
  std::map<std::uint64_t, Question> own_;  // questions to this host's disk, by token: kept for their deadlines
  std::map<std::uint64_t, Asker> askers_;  // by the effect's token
};

}  // namespace dtrain::node
