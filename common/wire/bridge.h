// What an agent and a dtrainctl on another machine say to each other: one message each way carries one of these. The bytes that
// they carry are those of a control socket (common/wire/control.h), which both ends see as if the other were on this machine.
//
//     hello  version        the client first; then the agent, which from then on serves it
//     data   bytes          at most kBridgeChunkBytes, within what the other side allowed
//     allow  count          so many more bytes may be sent (little-endian, 4 bytes)
//     ping, pong            who hears nothing asks, and gives the other up when that is not answered
//     end                   nothing follows; in answer to anything but a hello: you are not known (any more)
//
// Encoded: a byte for the word, then its argument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::uint8_t kBridgeVersion = 1;
inline constexpr std::size_t kBridgeChunkBytes = 16 << 10;
inline constexpr std::size_t kBridgeMessageBytes = kBridgeChunkBytes + 1;  // the longest

enum class BridgeWord : std::uint8_t { hello = 1, data, allow, ping, pong, end };

struct BridgeMessage {
  BridgeWord word = BridgeWord::ping;
  std::string bytes;        // data: not empty
  std::uint32_t count = 0;  // hello: version; allow: bytes, not 0
  bool operator==(const BridgeMessage&) const = default;
};

std::string encode_bridge(const BridgeMessage& message);
// ErrorCode::invalid: it is none.
Result<BridgeMessage> decode_bridge(std::string_view bytes);

}  // namespace dtrain::wire
