// Checkpoints on other hosts: what the coordinator asks about them, and what other agents ask this host.
//
// A question to this host is the effect itself; one to another goes over a relayed stream, and is answered by the same event, so
// that who asks sees no difference but the time. What gives no answer is Error{unavailable}.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/node/context.h"
#include "common/node/relays.h"

namespace dtrain::node {

inline constexpr std::size_t kQuestionsAtOnce = 48;      // of this host, to all others; further ones wait
inline constexpr std::size_t kQuestionsOfHost = 8;       // of them to one: its disk may hang
inline constexpr std::size_t kQuestionsWaiting = 4096;   // a further one is answered with Error{limit}
inline constexpr Duration kScanWithin = 30s;             // a disk may hang, also this host's: then there is nothing
inline constexpr Duration kVerifyWithin = 1h;            // then it is asked anew: some 4 TB at 1 GB/s
inline constexpr Duration kQuarantineWithin = 60s;       // then it is passed over
inline constexpr std::size_t kFoundBytes = 256 << 10;    // of what a scan found: the newest that fit are told
inline constexpr std::size_t kQuestionsOfOthers = 256;   // being answered here; a further one is refused

class CheckpointRequests {
 public:
  CheckpointRequests(Context& context, Relays& relays) : c_(context), relays_(relays) {}

  // ---- this host asks -> the effects' events, with their tokens. Job, spec and user are of the ledger.
  void scan(const NodeId& host, ScanCheckpoints effect);
  void verify(const NodeId& host, VerifyCheckpoint effect);
  void quarantine(const NodeId& host, QuarantineCheckpoint effect);
  // Of other hosts, since the last call.
  std::vector<Event> take_answers() { return std::exchange(answers_, {}); }

  // ---- other agents ask
  void asked(const Request& e, const wire::CheckpointQuestion& q);
  // True: it answers another agent's question.
  bool scanned(const CheckpointsScanned& e);
  bool verified(const CheckpointVerified& e);
  bool quarantined(const CheckpointQuarantined& e);
  void closed(ConnectionId connection);

  // ---- both
  void answered(const RelayAnswered& e);
  void ended(const RelayEnded& e);
  void members_changed();
  void drive();
  Instant deadline() const;

 private:
  struct Question {
    NodeId host;
    JobId job = 0;
    std::uint64_t token = 0;
    std::string path;
    wire::CheckpointQuestion body;
    ConnectionId part = 0;
    Instant until = kNever;
    std::string answer;  // an encoded wire::CheckpointAnswer
  };
  struct Asker {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
  };
  bool is_open_to(const NodeId& host) const;  // less than its share
  void ask(Question question);
  void open(Question question);
  void settle(const Question& q, const Status& result);
  bool take(std::uint64_t token, Asker& asker);

  Context& c_;
  Relays& relays_;
  std::map<ConnectionId, Question> open_;  // by the connection of their stream
  std::deque<Question> waiting_;
  std::map<std::uint64_t, Question> own_;  // of this host's disk, by token: for their deadlines
  std::map<std::uint64_t, Asker> askers_;  // by the effect's token
  std::vector<Event> answers_;
};

}  // namespace dtrain::node
