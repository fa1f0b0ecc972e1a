// How the conversation of a client with an agent (wire/control.h) goes on with another agent, whose host has the task: one
// reliable stream of bytes in each direction, over links that lose messages (common/relay/stream_end.h). The bytes are frames
// of the control protocol.
//
// encode_relay()/decode_relay() write append-only arrays: a shorter one leaves defaults, a longer one is cut. Limits are
// checked before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::uint16_t kFirstRelayType = 132;  // types 132 to 139 are the relay's
inline constexpr std::uint16_t kRelayTypes = 3;        // of them in use
inline constexpr std::size_t kRelaySegmentBytes = 64 << 10;                         // of the stream, in one message
inline constexpr std::size_t kRelayMessageBytes = kRelaySegmentBytes + (4 << 10);  // larger: dropped unread
inline constexpr std::size_t kRelayUserBytes = 256;                                 // of a user's name
inline constexpr std::size_t kRelayTextBytes = 1024;                                // of each text of an error

// "Serve this user as if they were connected with you." Said again until the addressee is heard.
struct RelayOpen {
  std::uint64_t stream = 0;   // from 1; every stream that the sender opens has a higher one, over all its lives
  std::string user;           // who asks: the name of the account on the sender's host, "" for none
  std::uint32_t uid = 0;
  std::uint64_t applied = 0;  // the newest entry of the log that the sender's ledger has: the addressee's must have it too
  std::uint64_t allowed = 0;  // as in RelayData
  bool operator==(const RelayOpen&) const = default;
};

// Bytes of the stream, or only what the sender has and takes.
struct RelayData {
  std::uint64_t stream = 0;
  bool opener = false;         // said by the one that opened the stream
  std::uint64_t offset = 0;    // of the first of `bytes` in the stream of this direction
  std::string bytes;
  std::uint64_t received = 0;  // of the other direction: all before this offset have arrived
  std::uint64_t allowed = 0;   // likewise: bytes may be sent up to this offset
  bool asks = false;           // for an answer, since nothing may be sent
  bool operator==(const RelayData&) const = default;
};

// The stream is over, for whatever reason; also the answer to whatever belongs to no stream.
struct RelayClose {
  std::uint64_t stream = 0;
  bool opener = false;  // as in RelayData
  ErrorCode code = ErrorCode::unavailable;
  std::string cause;    // "": the sender wants no more of it
  std::string next;
  bool operator==(const RelayClose&) const = default;
};

using RelayMessage = std::variant<RelayOpen, RelayData, RelayClose>;  // in the order of their types

bool is_relay_type(std::uint16_t type);
std::uint16_t type_of(const RelayMessage& message);
std::string encode_relay(const RelayMessage& message);
// limit: longer than kRelayMessageBytes. damaged: anything else.
Result<RelayMessage> decode_relay(std::uint16_t type, std::string_view bytes);

}  // namespace dtrain::wire
