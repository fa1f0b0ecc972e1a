#include "common/wire/bridge.h"

namespace dtrain::wire {
namespace {

constexpr std::size_t kCountBytes = 4;

auto no_message(const std::string& cause) { return fail(ErrorCode::invalid, "could not read bridge message: " + cause); }

}  // namespace

std::string encode_bridge(const BridgeMessage& message) {
  std::string out(1, static_cast<char>(message.word));
  switch (message.word) {
    case BridgeWord::hello: out.push_back(static_cast<char>(message.count)); break;
    case BridgeWord::data: out += message.bytes; break;
    case BridgeWord::allow:
      for (std::size_t i = 0; i < kCountBytes; ++i) out.push_back(static_cast<char>(message.count >> 8 * i));
      break;
    case BridgeWord::ping:
    case BridgeWord::pong:
    case BridgeWord::end: break;
  }
  return out;
}

Result<BridgeMessage> decode_bridge(std::string_view bytes) {
  if (bytes.empty()) return no_message("it is empty");
  if (bytes.size() > kBridgeMessageBytes) return no_message("it is too long");
  BridgeMessage message;
  const auto word = static_cast<unsigned char>(bytes.front());
  bytes.remove_prefix(1);
  if (word < static_cast<unsigned char>(BridgeWord::hello) || word > static_cast<unsigned char>(BridgeWord::end))
    return no_message("unknown word " + std::to_string(word));
  message.word = static_cast<BridgeWord>(word);
  switch (message.word) {
    case BridgeWord::hello:
      if (bytes.size() != 1) return no_message("a hello is of one version");
      message.count = static_cast<unsigned char>(bytes.front());
      break;
    case BridgeWord::data:
      if (bytes.empty()) return no_message("data without bytes");
      message.bytes = bytes;
      break;
    case BridgeWord::allow:
      if (bytes.size() != kCountBytes) return no_message("an allow is of one number");
      for (std::size_t i = 0; i < kCountBytes; ++i)
        message.count |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
      if (message.count == 0) return no_message("an allow of nothing");
      break;
    case BridgeWord::ping:
    case BridgeWord::pong:
    case BridgeWord::end:
      if (!bytes.empty()) return no_message("a word that takes no argument has one");
      break;
  }
  return message;
}

}  // namespace dtrain::wire
