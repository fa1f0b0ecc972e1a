#include "common/relay/bridge_end.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace dtrain::relay {
namespace {

// Fewer allow messages than data messages; the other side still has three quarters of the window.
constexpr std::size_t kAllowBytes = kBridgeWindowBytes / 4;

auto broken(const char* cause) {
  return fail(ErrorCode::invalid, std::string("could not go on with the connection: ") + cause, "see which program runs there");
}

}  // namespace

Status BridgeEnd::receive(Instant now, const wire::BridgeMessage& message) {
  heard_ = asked_ = now;
  if (ended_) return {};
  switch (message.word) {
    case wire::BridgeWord::hello: return broken("it began a second time");
    case wire::BridgeWord::data:
      if (message.bytes.size() > allowed_) return broken("more was sent than was allowed");
      allowed_ -= message.bytes.size();
      waiting_ += message.bytes;
      break;
    case wire::BridgeWord::allow:
      if (message.count > kBridgeWindowBytes - credit_) return broken("more was allowed than was sent");
      credit_ += message.count;
      break;
    case wire::BridgeWord::ping: owes_pong_ = true; break;
    case wire::BridgeWord::pong: break;
    case wire::BridgeWord::end: ended_ = true; break;
  }
  return {};
}

void BridgeEnd::delivered(std::size_t bytes) {
  CHECK(bytes <= waiting_.size() - delivered_);
  delivered_ += bytes;
  unanswered_ += bytes;
  if (delivered_ == waiting_.size()) {
    waiting_ = std::string();  // an idle connection keeps no memory
    delivered_ = 0;
  } else if (delivered_ > waiting_.size() / 2) {
    waiting_.erase(0, delivered_);
    delivered_ = 0;
  }
}

std::size_t BridgeEnd::room() const { return ended_ ? 0 : std::min(credit_, wire::kBridgeChunkBytes); }

wire::BridgeMessage BridgeEnd::say(std::string_view bytes) {
  CHECK(!bytes.empty() && bytes.size() <= room());
  credit_ -= bytes.size();
  return {wire::BridgeWord::data, std::string(bytes), 0};
}

std::optional<wire::BridgeMessage> BridgeEnd::next(Instant now) {
  if (ended_) return std::nullopt;
  if (unanswered_ >= kAllowBytes) {
    const auto count = static_cast<std::uint32_t>(std::exchange(unanswered_, 0));
    allowed_ += count;
    return wire::BridgeMessage{wire::BridgeWord::allow, "", count};
  }
  if (std::exchange(owes_pong_, false)) return wire::BridgeMessage{wire::BridgeWord::pong, "", 0};
  if (now - asked_ < kBridgePing) return std::nullopt;
  asked_ = now;
  return wire::BridgeMessage{wire::BridgeWord::ping, "", 0};
}

Instant BridgeEnd::deadline() const {
  const Instant given_up = heard_ + kBridgeSilence;
  return ended_ ? given_up : std::min(asked_ + kBridgePing, given_up);
}

}  // namespace dtrain::relay
