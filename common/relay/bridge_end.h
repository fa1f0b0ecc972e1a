// One end of the byte stream between an agent and a dtrainctl on another machine (common/wire/bridge.h), over a
// connection that loses and reorders nothing. Both ends work alike. No call blocks: bytes go in and out as far as
// there is room.
//
// Bound: at most kBridgeWindowBytes are received and not yet handed on, because the other side may not send more
// before it is allowed to; a side that does so is disconnected.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/time.h"
#include "common/wire/bridge.h"

namespace dtrain::relay {

inline constexpr std::size_t kBridgeWindowBytes = 256 << 10;  // in flight in one direction; also the bytes in one round trip
inline constexpr Duration kBridgePing = 5s;                   // after so long without a message the other side is asked, and asked again
inline constexpr Duration kBridgeSilence = 20s;               // after so long without a message the other side is given up

class BridgeEnd {
 public:
  explicit BridgeEnd(Instant now) : heard_(now), asked_(now) {}

  // ErrorCode::invalid: the message breaks the protocol (more bytes than allowed, a second hello); end the connection.
  Status receive(Instant now, const wire::BridgeMessage& message);

  // Bytes received and yet to be handed on, in order.
  std::string_view waiting() const { return std::string_view(waiting_).substr(delivered_); }
  void delivered(std::size_t bytes);

  // How many bytes say() takes now, at most kBridgeChunkBytes.
  std::size_t room() const;
  // `bytes`: not empty, at most room().
  wire::BridgeMessage say(std::string_view bytes);

  // The next message other than data that is to be sent; nullopt: none now.
  std::optional<wire::BridgeMessage> next(Instant now);
  // When next() or silent() may change although nothing was received or handed on.
  Instant deadline() const;
  bool silent(Instant now) const { return now - heard_ >= kBridgeSilence; }
  bool ended() const { return ended_; }  // the other side ended the stream; waiting() is yet to be handed on

 private:
  std::string waiting_;
  std::size_t delivered_ = 0;                 // part of waiting_
  std::size_t unanswered_ = 0;                // bytes handed on for which no allow was sent yet
  std::size_t allowed_ = kBridgeWindowBytes;  // bytes that the other side may still send
  std::size_t credit_ = kBridgeWindowBytes;   // bytes that this side may still send
  Instant heard_, asked_;
  bool owes_pong_ = false, ended_ = false;
};

}  // namespace dtrain::relay
