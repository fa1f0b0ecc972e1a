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

template <class V, class Id>
void assignment(V& v, Id& x) {
  v.number("job", x.job);
  v.number("generation", x.generation);
  v.word("role", x.task.role, limits::kNameBytes);
  v.number("index", x.task.index);
}
template <class V>
void fields(V& v, positional::Ref<V, LeaseRequest> x) {
  assignment(v, x.id);
  v.number("attempt", x.attempt);
  v.number("nonce", x.nonce);
}
template <class V>
void fields(V& v, positional::Ref<V, LeaseAnswer> x) {
  assignment(v, x.id);
  v.number("nonce", x.nonce);
  v.flag("granted", x.granted);
  v.number("epoch", x.epoch);
}

static const char* defect(Forward& x) { return x.body.empty() ? "it holds no command" : nullptr; }
static const char* no_question(const AssignmentId& id, std::uint64_t nonce) {
  return nonce == 0 || id.job == 0 || id.task.role.empty() ? "it names no question" : nullptr;
}
static const char* defect(LeaseRequest& x) { return no_question(x.id, x.nonce); }
static const char* defect(LeaseAnswer& x) { return no_question(x.id, x.nonce); }

namespace {

template <class Message>
Result<LogMessage> decode_as(const std::string& what, std::string_view bytes) {
  const auto damaged = [&](const std::string& cause) {
    return fail(ErrorCode::damaged, "could not decode " + what + ": " + cause, "the sender may run another version of dtrain");
  };
  if (bytes.size() > kRaftMessageBytes)
    return fail(ErrorCode::limit, "could not decode " + what + ": longer than " + std::to_string(kRaftMessageBytes) + " bytes");
  DecodeLimits limits;
  limits.bytes = kRaftMessageBytes;
  limits.elements = 64;
  limits.depth = kMessageDepth;
  const auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  Message message;
  DecodeError error;
  bool unknown = false;
  if (!positional::get_value(document->root(), message, error, unknown) || unknown)
    return damaged(error.failed() ? error.text() : "a value of a newer version");
  return LogMessage(std::move(message));
}

template <class Message>
std::string put(const Message& message) {
  Writer w;
  positional::put_value(w, message);
  return w.take();
}

}  // namespace

bool is_log_type(std::uint16_t type) {
  return (type >= kFirstRaftType && type < kFirstRaftType + kRaftTypes) || (type >= kForwardType && type <= kLeaseAnswerType);
}

std::uint16_t type_of(const LogMessage& message) {
  if (const auto* raft = std::get_if<RaftMessage>(&message)) return type_of(raft->body);
  return static_cast<std::uint16_t>(kForwardType + message.index() - 1);
}

std::string encode_log(const LogMessage& message) {
  if (const auto* raft = std::get_if<RaftMessage>(&message)) return encode_raft(*raft);
  if (const auto* request = std::get_if<LeaseRequest>(&message)) return put(*request);
  if (const auto* answer = std::get_if<LeaseAnswer>(&message)) return put(*answer);
  return put(std::get<Forward>(message));
}

Result<LogMessage> decode_log(std::uint16_t type, const MemberId& sender, std::string_view bytes) {
  if (type == kForwardType) return decode_as<Forward>("forwarded command", bytes);
  if (type == kLeaseRequestType) return decode_as<LeaseRequest>("request for a lease", bytes);
  if (type == kLeaseAnswerType) return decode_as<LeaseAnswer>("answer about a lease", bytes);
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
