#include "common/wire/peer.h"

#include "common/wire/formation.h"
#include "common/wire/gossip.h"
#include "common/wire/log_message.h"
#include "common/wire/positional.h"
#include "common/wire/relay.h"

namespace dtrain::wire {
namespace {

// The header's form on the wire. The first two fields keep their meaning in every format.
struct Envelope {
  std::uint32_t magic = kPeerMagic;
  PeerHeader header;
};

template <class V>
void fields(V& v, positional::Ref<V, Envelope> x) {
  v.number("magic", x.magic);
  v.number("format", x.header.format);
  v.number("type", x.header.type);
  v.id("cluster", x.header.cluster);
  v.id("sender", x.header.sender);
  v.number("incarnation", x.header.incarnation);
  v.number("epoch", x.header.epoch);
  v.number("correlation", x.header.correlation);
  v.keep();
}

constexpr std::uint16_t kJoin = 1, kJoinReply = 2;
static_assert(std::is_same_v<std::variant_alternative_t<kJoin - 1, GossipBody>, Join>);
static_assert(std::is_same_v<std::variant_alternative_t<kJoinReply - 1, GossipBody>, JoinReply>);

// The first failing check decides: bytes, format, cluster, sender, type.
std::optional<Drop> refuse(const PeerHeader& header, std::size_t body_bytes, const MemberId& self, const MemberId& cluster,
                           const LinkAuth& auth) {
  const auto lane = lane_of(header.type);
  const bool of_log = is_log_type(header.type);
  const bool forming = header.type == kFormationType;
  const bool relayed = is_relay_type(header.type);
  const bool joining = header.type == kJoin || header.type == kJoinReply || forming;
  const std::size_t most = forming                ? kFormationBytes
                           : relayed              ? kRelayMessageBytes
                           : of_log               ? kRaftMessageBytes
                           : lane == Lane::gossip ? kGossipMessageBytes
                                                  : kBulkMessageBytes;
  if (body_bytes > most) return Drop::too_large;
  if (forming) {
    // Types that need no cluster, or accept any.
  } else if (cluster.none()) {
    if (header.type != kJoinReply || header.cluster.none()) return Drop::other_cluster;
  } else if (header.cluster != cluster && !(header.type == kJoin && header.cluster.none())) {
    return Drop::other_cluster;
  }
  if (auth.curve && !auth.cluster_key && header.sender != auth.node) return Drop::not_the_key_holder;
  if (header.sender == self) return Drop::self;
  if (auth.curve && auth.cluster_key && !joining) return Drop::join_link;
  if (!lane && !of_log && !forming && !relayed) return Drop::unknown_type;
  return std::nullopt;
}

}  // namespace

const char* to_string(Drop drop) {
  switch (drop) {
    case Drop::malformed: return "malformed";
    case Drop::too_large: return "too-large";
    case Drop::unknown_format: return "unknown-format";
    case Drop::other_cluster: return "other-cluster";
    case Drop::not_the_key_holder: return "not-the-key-holder";
    case Drop::self: return "self";
    case Drop::join_link: return "join-link";
    case Drop::unknown_type: return "unknown-type";
    case Drop::bad_body: return "bad-body";
  }
  return "unknown";
}

std::string encode_header(const PeerHeader& header) {
  Writer w;
  w.reserve(kHeaderBytes);
  positional::put_value(w, Envelope{kPeerMagic, header});
  return w.take();
}

std::size_t encoded_size(const PeerHeader& header) {
  positional::Sizer sizer;
  positional::put_value(sizer, Envelope{kPeerMagic, header});
  return sizer.total();
}

CheckedHeader check_header(std::string_view bytes, std::size_t body_bytes, const MemberId& self, const MemberId& cluster,
                           const LinkAuth& auth) {
  CheckedHeader checked;
  checked.drop = Drop::malformed;
  DecodeLimits limits;
  limits.bytes = kHeaderBytes;
  limits.elements = kHeaderBytes;
  limits.depth = 4;
  const auto document = Document::parse(bytes, limits);
  if (!document) return checked;
  const Reader root = document->root();
  if (root.kind() != Reader::Kind::array || root.size() < 2) return checked;
  DecodeError error;
  std::uint32_t magic = 0;
  std::uint16_t format = 0;
  if (!read_value(root.at(0), magic, error) || magic != kPeerMagic || !read_value(root.at(1), format, error)) return checked;
  if (format == 0 || format > kPeerFormat) {
    checked.drop = Drop::unknown_format;
    return checked;
  }
  Envelope envelope;
  bool unknown = false;
  if (!positional::get_value(root, envelope, error, unknown) || envelope.header.sender.none()) return checked;
  checked.header = envelope.header;
  const auto refused = refuse(envelope.header, body_bytes, self, cluster, auth);
  checked.ok = !refused;
  if (refused) checked.drop = *refused;
  return checked;
}

}  // namespace dtrain::wire
