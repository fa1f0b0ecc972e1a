// What members send each other about the log: Raft's messages (wire/raft.h), commands on their way to the leader, and
// lease questions and answers (docs/leases.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/ids.h"
#include "common/wire/gossip.h"
#include "common/wire/raft.h"

namespace dtrain::wire {

// Asks the leader that the sender knows to propose a command; repeated until the sender sees the command applied. There is no
// answer. The id of a user's request makes repetition harmless; a report carries a number of its own instead (cluster/command.h).
struct Forward {
  MemberId id;               // none: the command is a report
  std::uint64_t minted = 0;  // a committed index that the sender knew when it made the id
  std::uint16_t type = 0;    // cluster::CommandType
  std::string body;          // the encoded struct of that type
  bool operator==(const Forward&) const = default;
};
inline constexpr std::uint16_t kForwardType = 112;  // types 64 to 127 are the log's

// Asks the leader that the sender knows whether this assignment is still the sender's. Never repeated: the shim asks anew.
struct LeaseRequest {
  AssignmentId id;
  AttemptNumber attempt = 0;
  std::uint64_t nonce = 0;  // of the shim; not 0
  bool operator==(const LeaseRequest&) const = default;
};
struct LeaseAnswer {
  AssignmentId id;
  std::uint64_t nonce = 0;  // of the question
  bool granted = false;     // false: the assignment belongs to another host or to nobody
  std::uint64_t epoch = 0;  // of the answering coordinator
  bool operator==(const LeaseAnswer&) const = default;
};
inline constexpr std::uint16_t kLeaseRequestType = 113, kLeaseAnswerType = 114;

using LogMessage = std::variant<RaftMessage, Forward, LeaseRequest, LeaseAnswer>;

bool is_log_type(std::uint16_t type);
std::uint16_t type_of(const LogMessage& message);
std::string encode_log(const LogMessage& message);
// ErrorCode::limit: longer than kRaftMessageBytes; damaged: anything else.
Result<LogMessage> decode_log(std::uint16_t type, const MemberId& sender, std::string_view bytes);
// Votes, heartbeats and other small messages go in order on the lane that nothing large delays; snapshots and large
// entries go on the other.
Lane lane_of(const LogMessage& message, std::size_t encoded_bytes);

}  // namespace dtrain::wire
