#include "common/wire/log_message.h"

#include "common/wire/positional.h"

namespace dtrain::wire {

template <class V>
void fields(V& v, positional::Ref<V, Forward> x) {
  v.id("id", x.id);
  v.number("minted", x.minted);
  v.number("type", x.type);
  v.bytes("body", x.body, kEntryBytes);
}

namespace {

constexpr std::uint32_t kDepth = 16;

Result<LogMessage> decode_forward(std::string_view bytes) {
  const auto damaged = [](const std::string& cause) {
    return fail(ErrorCode::damaged, "could not decode forwarded command: " + cause,
                "the sender may run another version of dtrain");
  };
  if (bytes.size() > kRaftMessageBytes)
    return fail(ErrorCode::limit,
                "could not decode forwarded command: longer than " + std::to_string(kRaftMessageBytes) + " bytes");
  DecodeLimits limits;
  limits.bytes = kRaftMessageBytes;
  limits.elements = 64;
  limits.depth = kDepth;
  const auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  Forward forward;
  DecodeError error;
  bool unknown = false;
  if (!positional::get_value(document->root(), forward, error, unknown) || unknown)
    return damaged(error.failed() ? error.text() : "a value of a newer version");
  if (forward.body.empty()) return damaged("it holds no command");
  return LogMessage(std::move(forward));
}

}  // namespace

bool is_log_type(std::uint16_t type) {
  return (type >= kFirstRaftType && type < kFirstRaftType + kRaftTypes) || type == kForwardType;
}

std::uint16_t type_of(const LogMessage& message) {
  const auto* raft = std::get_if<RaftMessage>(&message);
  return raft == nullptr ? kForwardType : type_of(raft->body);
}

std::string encode_log(const LogMessage& message) {
  if (const auto* raft = std::get_if<RaftMessage>(&message)) return encode_raft(*raft);
  Writer w;
  positional::put_value(w, std::get<Forward>(message));
  return w.take();
}

Result<LogMessage> decode_log(std::uint16_t type, const MemberId& sender, std::string_view bytes) {
  if (type == kForwardType) return decode_forward(bytes);
  auto message = decode_raft(type, sender, bytes);
  if (!message) return fail(message.error());
  return LogMessage(*std::move(message));
}

Lane lane_of(const LogMessage& message, std::size_t encoded_bytes) {
  const auto* raft = std::get_if<RaftMessage>(&message);
  const bool chunk = raft != nullptr && std::holds_alternative<SnapshotChunk>(raft->body);
  return chunk || encoded_bytes > kGossipMessageBytes ? Lane::bulk : Lane::gossip;
}

}  // namespace dtrain::wire
