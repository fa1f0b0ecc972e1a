#include "common/wire/relay.h"

#include "common/wire/positional.h"

namespace dtrain::wire {

using positional::Ref;

template <class V>
void fields(V& v, Ref<V, RelayOpen> x) {
  v.number("stream", x.stream);
  v.bytes("user", x.user, kRelayUserBytes);
  v.number("uid", x.uid);
  v.number("applied", x.applied);
  v.number("allowed", x.allowed);
  v.number("job", x.inside.job);
  v.number("generation", x.inside.generation);
  v.bytes("role", x.inside.task.role, kRelayRoleBytes);
  v.number("index", x.inside.task.index);
}
const char* defect(RelayOpen& x) { return x.stream == 0 ? "no stream" : nullptr; }

template <class V>
void fields(V& v, Ref<V, RelayData> x) {
  v.number("stream", x.stream);
  v.flag("opener", x.opener);
  v.number("offset", x.offset);
  v.bytes("bytes", x.bytes, kRelaySegmentBytes);
  v.number("received", x.received);
  v.number("allowed", x.allowed);
  v.flag("asks", x.asks);
}
const char* defect(RelayData& x) {
  if (x.stream == 0) return "no stream";
  return x.offset + x.bytes.size() < x.offset ? "an offset out of range" : nullptr;
}

template <class V>
void fields(V& v, Ref<V, RelayClose> x) {
  v.number("stream", x.stream);
  v.flag("opener", x.opener);
  v.choice("code", x.code);
  v.prose("cause", x.cause, kRelayTextBytes);
  v.prose("next", x.next, kRelayTextBytes);
}
const char* defect(RelayClose& x) { return x.stream == 0 ? "no stream" : nullptr; }

namespace {

constexpr std::uint32_t kRelayElements = 64;  // of any list; there is none here

template <class T>
Result<RelayMessage> decode_as(Reader root) {
  T out;
  DecodeError error;
  bool unknown = false;
  if (positional::get_value(root, out, error, unknown) && unknown) error.set("a value of a newer version");
  if (error.failed())
    return fail(ErrorCode::damaged, "could not decode message of a relay: " + error.text(), "the sender may run another version of dtrain");
  return RelayMessage(std::move(out));
}

}  // namespace

bool is_relay_type(std::uint16_t type) { return type >= kFirstRelayType && type < kFirstRelayType + kRelayTypes; }

std::uint16_t type_of(const RelayMessage& message) { return static_cast<std::uint16_t>(kFirstRelayType + message.index()); }

std::string encode_relay(const RelayMessage& message) {
  Writer w;
  std::visit([&](const auto& m) { positional::put_value(w, m); }, message);
  return w.take();
}

Result<RelayMessage> decode_relay(std::uint16_t type, std::string_view bytes) {
  if (!is_relay_type(type)) return fail(ErrorCode::invalid, "could not decode message of a relay: not of its types");
  if (bytes.size() > kRelayMessageBytes)
    return fail(ErrorCode::limit, "could not decode message of a relay: longer than " + std::to_string(kRelayMessageBytes) + " bytes");
  DecodeLimits limits;
  limits.bytes = kRelayMessageBytes;
  limits.elements = kRelayElements;
  limits.depth = kMessageDepth;
  const auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  switch (type - kFirstRelayType) {
    case 0: return decode_as<RelayOpen>(document->root());
    case 1: return decode_as<RelayData>(document->root());
    default: return decode_as<RelayClose>(document->root());
  }
}

}  // namespace dtrain::wire
