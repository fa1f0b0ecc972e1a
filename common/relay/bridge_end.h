// One end of the byte stream between an agent and a dtrainctl on another machine (common/wire/bridge.h), over a connection that
// loses and reorders nothing. Both ends are alike. Nothing of it waits: bytes go in and out as far as there is room.
//
// Bounds: what was received and not handed on is at most kBridgeWindowBytes, since the other side may not send more before it is
// allowed; who does is turned out.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/time.h"
#include "common/wire/bridge.h"

namespace dtrain::relay {

inline constexpr std::size_t kBridgeWindowBytes = 256 << 10;  // under way in one direction; as much a round trip
inline constexpr Duration kBridgePing = 5s;                   // heard nothing for so long: the other side is asked, and again
inline constexpr Duration kBridgeSilence = 20s;               // then it is given up

class BridgeEnd {
 public:
  explicit BridgeEnd(Instant now) : heard_(now), asked_(now) {}

  // ErrorCode::invalid: against the agreement (more than was allowed, a second hello): end the connection.
  Status receive(Instant now, const wire::BridgeMessage& message);

  // Received and still to be handed on, in order.
  std::string_view waiting() const { return std::string_view(waiting_).substr(delivered_); }
  void delivered(std::size_t bytes);

  // How many bytes say() takes now, at most kBridgeChunkBytes.
  std::size_t room() const;
  // `bytes`: not empty, at most room().
  wire::BridgeMessage say(std::string_view bytes);

  // What is to be said besides data; nullopt: nothing now.
  std::optional<wire::BridgeMessage> next(Instant now);
  // When next() or silent() may change without anything received or handed on.
  Instant deadline() const;
  bool silent(Instant now) const { return now - heard_ >= kBridgeSilence; }
  bool ended() const { return ended_; }  // the other side said so; waiting() is still to be handed on

 private:
  std::string waiting_;
  std::size_t delivered_ = 0;                 // of waiting_
  std::size_t unanswered_ = 0;                 // handed on and not yet answered with allow
  std::size_t allowed_ = kBridgeWindowBytes;  // that the other side may still send
  std::size_t credit_ = kBridgeWindowBytes;   // that we may
  Instant heard_, asked_;
  bool owes_pong_ = false, ended_ = false;
};

}  // namespace dtrain::relay
