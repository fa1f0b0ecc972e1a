#include <array>
#include <utility>

#include "common/wire/gossip.h"
#include "common/wire/gossip_fields.h"
#include "common/wire/positional.h"

namespace dtrain::wire {
namespace {

using positional::Get;
using positional::Put;
using positional::Sizer;

struct Type {
  const char* name;
  Lane lane;
  Result<GossipBody> (*read)(const Document&, const char* name);
};

template <class T>
Result<GossipBody> read(const Document& document, const char* name) {
  T out{};
  DecodeError error;
  bool unknown = false;
  if (positional::get_value(document.root(), out, error, unknown) && unknown) error.set("a value of a newer version");
  if (error.failed())
    return fail(ErrorCode::damaged, std::string("could not decode ") + name + ": " + error.text(),
                "the sender may run another version of dtrain");
  return GossipBody(std::move(out));
}

template <std::size_t... I>
std::array<Type, kGossipTypes> make_types(std::index_sequence<I...>) {
  constexpr const char* kNames[] = {"join",      "join reply", "ping",      "pong",           "ping request", "nack",
                                    "probe now", "gossip",     "sync root", "sync summaries", "sync rows"};
  static_assert(std::size(kNames) == kGossipTypes);
  return {Type{kNames[I], lane_of(GossipBody(std::in_place_index<I>)), read<std::variant_alternative_t<I, GossipBody>>}...};
}

const Type* type_at(std::uint16_t type) {
  static const auto kTypes = make_types(std::make_index_sequence<kGossipTypes>());
  return type >= 1 && type <= kGossipTypes ? &kTypes[type - 1] : nullptr;
}

template <class T>
std::size_t size_of(const T& value) {
  Sizer sizer;
  positional::put_value(sizer, value);
  return sizer.total();
}

}  // namespace

std::optional<Lane> lane_of(std::uint16_t type) {
  const Type* known = type_at(type);
  return known == nullptr ? std::nullopt : std::optional(known->lane);
}

std::string encode_gossip(const GossipBody& body) {
  Writer w;
  w.reserve(encoded_size(body));
  std::visit([&w](const auto& x) { positional::put_value(w, x); }, body);
  return w.take();
}

Result<GossipBody> decode_gossip(std::uint16_t type, std::string_view bytes) {
  const Type* known = type_at(type);
  if (known == nullptr)
    return fail(ErrorCode::damaged, "could not decode message: unknown type " + std::to_string(type),
                "the sender may run another version of dtrain");
  DecodeLimits limits;
  limits.bytes = known->lane == Lane::gossip ? kGossipMessageBytes : kBulkMessageBytes;
  limits.elements = kRowsPerMessage;
  limits.depth = kMessageDepth;
  if (bytes.size() > limits.bytes)
    return fail(ErrorCode::limit,
                std::string("could not decode ") + known->name + ": longer than " + std::to_string(limits.bytes) + " bytes",
                "the sender may run another version of dtrain");
  const auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  return known->read(*document, known->name);
}

std::size_t encoded_size(const Rumour& rumour) { return size_of(rumour); }
std::size_t encoded_size(const Row& row) { return size_of(row); }
std::size_t encoded_size(const GossipBody& body) {
  return std::visit([](const auto& x) { return size_of(x); }, body);
}

}  // namespace dtrain::wire
