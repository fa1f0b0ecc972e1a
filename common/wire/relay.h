// How a client's conversation with its agent (wire/control.h) is carried on to another agent, whose host has the
// task: one reliable stream of bytes in each direction, over links that lose messages (common/relay/stream_end.h).
// The bytes are frames of the control protocol.
//
// encode_relay()/decode_relay() write append-only arrays: a shorter one leaves defaults, a longer one is cut. Limits
// are checked before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/ids.h"
#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::uint16_t kFirstRelayType = 132;                              // types 132 to 139 are the relay's
inline constexpr std::uint16_t kRelayTypes = 3;                                    // number of types in use
inline constexpr std::size_t kRelaySegmentBytes = 64 << 10;                        // of the stream, in one message
inline constexpr std::size_t kRelayMessageBytes = kRelaySegmentBytes + (4 << 10);  // larger: dropped unread
inline constexpr std::size_t kRelayRoleBytes = 256;                                // of the name of a task's role
inline constexpr std::size_t kRelayUserBytes = 256;                                // of a user's name
inline constexpr std::size_t kRelayTextBytes = 1024;                               // of each text of an error

// Asks an agent to serve this user as if they were connected with it; repeated until the agent is heard.
struct RelayOpen {
  std::uint64_t stream = 0;  // from 1; a sender's streams have ascending numbers over all its lives
  std::string user;          // account name on the sender's host of the user who asks; "": none
  std::uint32_t uid = 0;
  std::uint64_t applied = 0;  // the newest log entry in the sender's ledger, which the addressee's must have too
  std::uint64_t allowed = 0;  // as in RelayData
  AssignmentId inside = {};   // the task from whose inside the user asks; job 0: from none
  bool operator==(const RelayOpen&) const = default;
};

// Bytes of the stream, or only what the sender has received and allows.
struct RelayData {
  std::uint64_t stream = 0;
  bool opener = false;       // sent by the opener of the stream
  std::uint64_t offset = 0;  // of the first of `bytes` in the stream of this direction
  std::string bytes;
  std::uint64_t received = 0;  // in the other direction: all bytes before this offset have arrived
  std::uint64_t allowed = 0;   // in the other direction: bytes may be sent up to this offset
  bool asks = false;           // the sender may send nothing and asks for an answer
  bool operator==(const RelayData&) const = default;
};

// The stream is over, for any reason; also the answer to a message about an unknown stream.
struct RelayClose {
  std::uint64_t stream = 0;
  bool opener = false;  // as in RelayData
  ErrorCode code = ErrorCode::unavailable;
  std::string cause;  // "": the sender wants no more
  std::string next;
  bool operator==(const RelayClose&) const = default;
};

using RelayMessage = std::variant<RelayOpen, RelayData, RelayClose>;  // in the order of their types

bool is_relay_type(std::uint16_t type);
std::uint16_t type_of(const RelayMessage& message);
std::string encode_relay(const RelayMessage& message);
// ErrorCode::limit: longer than kRelayMessageBytes; damaged: anything else.
Result<RelayMessage> decode_relay(std::uint16_t type, std::string_view bytes);

}  // namespace dtrain::wire
