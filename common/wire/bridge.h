// What an agent and a dtrainctl on another machine send each other, one message at a time in each direction. The
// bytes inside are those of a control socket (common/wire/control.h), as if the other end were on this machine.
//
//     hello  version        the client first; then the agent, which from then on serves it
//     data   bytes          at most kBridgeChunkBytes, within what the other side allowed
//     allow  count          so many more bytes may be sent (little-endian, 4 bytes)
//     ping, pong            a side that hears nothing asks, and gives the other up when there is no answer
//     end                   nothing follows; in answer to anything but a hello: you are not known (any more)
//
// Encoded as a byte for the word, then its argument.
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
// ErrorCode::invalid: the bytes are no such message.
Result<BridgeMessage> decode_bridge(std::string_view bytes);

}  // namespace dtrain::wire
